// Made by tests/oracle/tokenizer_classes.py from transformers; do not edit.
#include "levin/text/reading/class_names.h"

#include <algorithm>

namespace levin::text {
namespace {

// A line is a class and the model_types that have it.
constexpr std::string_view kModelTypes = R"names(
AlbertTokenizer albert yoso
BartTokenizer florence2
BarthezTokenizer barthez
BartphoTokenizer bartpho
BertJapaneseTokenizer bert-japanese
BertTokenizer align bark bert blip bros chinese_clip convbert distilbert electra ernie flava git grounding-dino
BertTokenizer layoutlm megatron-bert mm-grounding-dino nezha nomic_bert qdqbert realm retribert squeezebert tvp vilt
BertTokenizer visual_bert
BertweetTokenizer bertweet
BigBirdTokenizer big_bird
BioGptTokenizer biogpt
BlenderbotSmallTokenizer blenderbot-small
BlenderbotTokenizer blenderbot
ByT5Tokenizer byt5
CLIPTokenizer aimv2 clip clipseg groupvit omdet-turbo oneformer owlv2 owlvit sam3 sam3_video xclip
CTRLTokenizer ctrl
CamembertTokenizer camembert
CanineTokenizer canine
ClvpTokenizer clvp
CodeLlamaTokenizer code_llama
CohereTokenizer aya_vision cohere cohere2
CpmAntTokenizer cpmant
CpmTokenizer cpm
DPRQuestionEncoderTokenizer dpr
DebertaTokenizer deberta
DebertaV2Tokenizer deberta-v2
DiaTokenizer dia
EsmTokenizer esm
EsmcTokenizer esmc esmfold2
FNetTokenizer fnet
FSMTTokenizer fsmt
FlaubertTokenizer flaubert
FunnelTokenizer funnel
GPT2Tokenizer blip-2 codegen dbrx emu3 gpt2 gpt_neo gptj hyperclovax_vision_v2 instructblip instructblipvideo jais2 opt
GPT2Tokenizer phi starcoder2
GPTNeoXJapaneseTokenizer gpt_neox_japanese
GPTNeoXTokenizer falcon_mamba gpt_neox mamba mamba2 mpt olmo olmoe rwkv xlstm
GemmaTokenizer diffusion_gemma gemma gemma2 gemma3 gemma3_text gemma3n gemma3n_text recurrent_gemma shieldgemma2
GemmaTokenizer t5gemma zaya
HerbertTokenizer herbert
LEDTokenizer led
LasrTokenizer lasr_ctc lasr_encoder
LayoutLMv2Tokenizer layoutlmv2
LayoutLMv3Tokenizer layoutlmv3
LayoutXLMTokenizer layoutxlm
LlamaTokenizer idefics idefics2
LukeTokenizer luke
LxmertTokenizer lxmert
MBart50Tokenizer mbart50
MBartTokenizer mbart
MPNetTokenizer mpnet
MarkupLMTokenizer markuplm
MgpstrTokenizer mgp-str
MobileBertTokenizer mobilebert
MvpTokenizer mvp
MyT5Tokenizer myt5
NllbTokenizer nllb nllb-moe
NougatTokenizer nougat pp_formulanet
OpenAIGPTTokenizer openai-gpt
PLBartTokenizer plbart
ParakeetTokenizer granite_speech5_ctc nemotron3_5_asr nemotron_asr_streaming parakeet_ctc parakeet_rnnt parakeet_tdt
PegasusTokenizer pegasus
PerceiverTokenizer perceiver
PhobertTokenizer phobert
ProphetNetTokenizer prophetnet
Qwen2Tokenizer audioflamingo3 colqwen2 cosmos3_omni dots3_note fun_asr_nano hunyuan_vl internvl lighton_ocr
Qwen2Tokenizer moss_transcribe_diarize ovis2 qianfan_ocr qwen2 qwen2_5_omni qwen2_5_vl qwen2_audio qwen2_moe qwen2_vl
Qwen2Tokenizer qwen3 qwen3_asr qwen3_moe qwen3_next qwen3_omni_moe qwen3_vl qwen3_vl_moe vibevoice
Qwen3_5Tokenizer qwen3_5 qwen3_5_moe qwen3_5_moe_text qwen3_5_text qwen4_exp
RagTokenizer rag
ReformerTokenizer reformer
RemBertTokenizer rembert
RoCBertTokenizer roc_bert
RoFormerTokenizer roformer
RobertaTokenizer bart bridgetower clap data2vec-text ibert lilt longformer mega mra roberta roberta-prelayernorm
SeamlessM4TTokenizer seamless_m4t seamless_m4t_v2
Siglip2Tokenizer siglip2
SplinterTokenizer splinter
T5Tokenizer mt5 musicgen musicgen_melody switch_transformers t5
TapasTokenizer tapas
TokenizersBackend EvollaModel arctic aria beam bigbird_pegasus camembertv2-base canary chatlm cohere_asr ernie4_5
TokenizersBackend ernie4_5_moe flex_olmo fuyu glm glm4 glm4_moe glm4_moe_lite glm4v glm4v_moe glm_image glmasr got_ocr2
TokenizersBackend gpt_bigcode gradium_phonon_tts granite granitemoe granitemoehybrid granitemoeshared h2ovl_chat
TokenizersBackend hyperclovax hyperclovax_vlm internlm2 internlm3 iquestcoder jamba kimi_k25 kimi_linear kosmos-2 llava
TokenizersBackend llava_next mimo_v2_flash minicpm3 minicpm_ocr minicpmv minicpmv4_6 minicpmv4_7 minimax_m2 ministral
TokenizersBackend ministral3 mistral mistral3 mistral_large4 mixtral modernbert modernbert-decoder molmo molmo2
TokenizersBackend nemo_speechlm nemotron nvfp4 nystromformer olmo2 olmo3 olmo_hybrid opencua openvla paddleocr_vl
TokenizersBackend pegasus_x persimmon phi3 phi3_v phimoe pix2struct pixtral pocket_tts smolvlm stablelm step3_vl umt5
TokenizersBackend vipllava voxtral voxtral_realtime xlm-roberta-xl
UdopTokenizer udop
VideoPrismTokenizer videoprism
VitsTokenizer vits
Wav2Vec2CTCTokenizer data2vec-audio hubert unispeech unispeech-sat wav2vec2 wav2vec2-bert wav2vec2-conformer
Wav2Vec2PhonemeCTCTokenizer wav2vec2_phoneme
WhisperTokenizer whisper
XGLMTokenizer xglm
XLMRobertaTokenizer gte jina_embeddings_v3 metaclip_2 trocr xlm-roberta xmod
XLMTokenizer xlm
XLNetTokenizer xlnet
)names";

// model_types whose class stands, whatever a folder names.
constexpr std::string_view kReplaced = R"names(
hyperclovax_vision_v2 qwen2 qwen3_5 qwen3_5_moe qwen3_5_moe_text qwen4_exp siglip2
)names";

// A line is a class and others that make the same.
constexpr std::string_view kAliases = R"names(
BertTokenizer ConvBertTokenizer DPRContextEncoderTokenizer DPRQuestionEncoderTokenizer DPRReaderTokenizer
BertTokenizer DistilBertTokenizer LxmertTokenizer MobileBertTokenizer SqueezeBertTokenizer
GPT2Tokenizer
GPTNeoXTokenizer
GemmaTokenizer
LlamaTokenizer
MPNetTokenizer
Qwen2Tokenizer
RobertaTokenizer BartTokenizer LEDTokenizer MvpTokenizer
XLMRobertaTokenizer
)names";

// Classes that make parts of their own.
constexpr std::string_view kOthers = R"names(
AlbertTokenizer BarthezTokenizer BertJapaneseTokenizer BertTokenizerLegacy BertweetTokenizer BigBirdTokenizer
BioGptTokenizer BlenderbotSmallTokenizer BlenderbotTokenizer ByT5Tokenizer CLIPTokenizer CTRLTokenizer
CamembertTokenizer CanineTokenizer ClvpTokenizer CodeGenTokenizer CodeLlamaTokenizer CohereTokenizer CpmAntTokenizer
CpmTokenizer DebertaTokenizer DebertaV2Tokenizer DiaTokenizer EsmTokenizer EsmcTokenizer FNetTokenizer FSMTTokenizer
FastSpeech2ConformerTokenizer FlaubertTokenizer FunnelTokenizer GPTNeoXJapaneseTokenizer HerbertTokenizer
LasrTokenizer LayoutLMv2Tokenizer LayoutLMv3Tokenizer LayoutXLMTokenizer LukeTokenizer MBart50Tokenizer MBartTokenizer
MLukeTokenizer MarkupLMTokenizer MgpstrTokenizer MyT5Tokenizer NllbTokenizer NougatTokenizer OpenAIGPTTokenizer
PegasusTokenizer PerceiverTokenizer PhobertTokenizer ProphetNetTokenizer Qwen3_5Tokenizer ReformerTokenizer
RemBertTokenizer RoCBertTokenizer RoFormerTokenizer SeamlessM4TTokenizer Siglip2Tokenizer SplinterTokenizer
T5Tokenizer TapasTokenizer Tipsv2Tokenizer UdopTokenizer VideoPrismTokenizer VitsTokenizer Wav2Vec2CTCTokenizer
Wav2Vec2PhonemeCTCTokenizer WhisperTokenizer XGLMTokenizer XLMTokenizer XLNetTokenizer
)names";

/// Calls visit(first word, word) for each word of each line; false from it ends the walk.
template <class Visit>
void for_each_word(std::string_view table, const Visit& visit) {
  while (!table.empty()) {
    const size_t end = std::min(table.find('\n'), table.size());
    std::string_view line = table.substr(0, end);
    table.remove_prefix(std::min(end + 1, table.size()));
    std::string_view first;
    while (!line.empty()) {
      const size_t space = std::min(line.find(' '), line.size());
      const std::string_view word = line.substr(0, space);
      line.remove_prefix(std::min(space + 1, line.size()));
      if (word.empty()) continue;
      if (first.empty()) first = word;
      if (!visit(first, word)) return;
    }
  }
}

/// The first word of the line that has the word; "" where none has it.
std::string_view line_with(std::string_view table, std::string_view wanted) {
  std::string_view found;
  for_each_word(table, [&](std::string_view first, std::string_view word) {
    if (word == wanted) found = first;
    return found.empty();
  });
  return found;
}

}  // namespace

ModelType model_type(std::string_view name) {
  if (name.empty()) return {};
  const std::string_view found = line_with(kModelTypes, name);
  ModelType type;
  type.is_backend = found == "TokenizersBackend";
  if (!type.is_backend) type.tokenizer_class = found;
  type.replaces = !line_with(kReplaced, name).empty();
  return type;
}

std::string class_by_alias(std::string_view name) {
  const std::string_view found = name.empty() ? "" : line_with(kAliases, name);
  return std::string(found.empty() ? name : found);
}

bool makes_parts_of_its_own(std::string_view name) {
  return !name.empty() && !line_with(kOthers, name).empty();
}

}  // namespace levin::text
