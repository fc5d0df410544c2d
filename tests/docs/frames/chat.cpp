// Statements beside a folder "chat/model" of a small model with a chat template, which stands in for a real one.

void run(int, char**) {
  std::filesystem::create_directories("chat/model");
  std::ofstream("chat/model/tokenizer.json") << R"({"pre_tokenizer": {"type": "WhitespaceSplit"},
      "model": {"type": "WordLevel", "unk_token": "?",
                "vocab": {"?": 0, "once": 1, "upon": 2, "a": 3, "time": 4, "user": 5, "bot": 6, "end": 7}}})";
  std::ofstream("chat/model/tokenizer_config.json")
      << R"({"eos_token": "end", "pad_token": "?", "tokenizer_class": "TokenizersBackend",
      "chat_template": "{% for m in messages %}{{ m.role }} {{ m.content }} end {% endfor %}bot "})";
  levin::models::from_config(levin::models::Config::from_json(
                                 R"({"model_type": "qwen3", "vocab_size": 8, "hidden_size": 16,
      "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
      "head_dim": 8, "eos_token_id": 7, "pad_token_id": 0})"),
                             {.task = "text-generation"})
      ->save_pretrained("chat/model");
  const auto tokenizer = levin::text::Tokenizer::from_pretrained("chat/model");
  const auto net = levin::models::from_pretrained("chat/model", {.task = "text-generation"});
  {
    // LISTING
  }
}
