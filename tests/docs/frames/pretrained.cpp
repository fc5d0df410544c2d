// Statements beside a folder "minilm" of a small model, which stands in for the real one.

void run(int, char**) {
  std::filesystem::create_directories("minilm");
  std::ofstream("minilm/tokenizer.json") << R"({"pre_tokenizer": {"type": "Whitespace"},
      "model": {"type": "WordLevel", "unk_token": "[UNK]",
                "vocab": {"[PAD]": 0, "[UNK]": 1, "draw": 2, "a": 3, "picture": 4, "keep": 5, "the": 6, "books": 7}}})";
  std::ofstream("minilm/tokenizer_config.json")
      << R"({"pad_token": "[PAD]", "tokenizer_class": "TokenizersBackend"})";
  levin::models::from_config(
      levin::models::Config::from_json(R"({"model_type": "bert", "vocab_size": 9,
      "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2})"))
      ->save_pretrained("minilm");
  levin::Accelerator accelerator;
  // LISTING
}
