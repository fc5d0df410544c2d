#include "levin/text/normalizers/kinds.h"

namespace levin::text {

NormalizerPtr read_normalizer(const Component& component) {
  if (component.is_null()) return nullptr;
  const std::string kind = component.kind();
  if (kind == "Sequence") return read_normalizers(component);
  if (kind == "BertNormalizer") return read_bert_normalizer(component);
  if (kind == "Precompiled") return read_precompiled(component);
  if (kind == "Replace") return read_replace(component);
  if (NormalizerPtr normal_form = read_normal_form(kind)) return normal_form;
  if (NormalizerPtr simple = read_simple_normalizer(kind, component)) return simple;
  component.refuse_kind("normalizer", {"Sequence", "BertNormalizer", "NFC", "NFD", "NFKC", "NFKD",
                                       "Lowercase", "Strip", "StripAccents", "Replace", "Prepend",
                                       "Precompiled", "Nmt", "ByteLevel"});
}

}  // namespace levin::text
