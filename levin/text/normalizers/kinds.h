#pragma once
// The kinds of normalizers, for read.cpp. Not for users.

#include <string>

#include "levin/text/normalizers/normalizer.h"

namespace levin::text {

NormalizerPtr read_normalizers(const Component& component);  ///< Sequence
NormalizerPtr read_bert_normalizer(const Component& component);
NormalizerPtr read_precompiled(const Component& component);
NormalizerPtr read_replace(const Component& component);
/// Null where kind is no NFC, NFD, NFKC or NFKD.
NormalizerPtr read_normal_form(const std::string& kind);
/// Lowercase, Strip, StripAccents, Prepend, Nmt, ByteLevel; null for others.
NormalizerPtr read_simple_normalizer(const std::string& kind, const Component& component);

}  // namespace levin::text
