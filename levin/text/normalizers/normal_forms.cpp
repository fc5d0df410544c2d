// NFC, NFD, NFKC, NFKD.
#include "levin/text/normalizers/kinds.h"

namespace levin::text {
namespace {

using unicode::NormalForm;

class InNormalForm : public Normalizer {
 public:
  explicit InNormalForm(NormalForm form) : form_(form) {}

  void apply(WorkingText& text) const override {
    if (!unicode::may_change(text.text(), form_) && text.stays()) return;
    std::vector<Change>& changes = text.changes();
    unicode::normalize(text.text(), form_, changes);
    text.transform(changes);
  }

 private:
  NormalForm form_;
};

}  // namespace

NormalizerPtr read_normal_form(const std::string& kind) {
  if (kind == "NFC") return std::make_unique<InNormalForm>(NormalForm::kNfc);
  if (kind == "NFD") return std::make_unique<InNormalForm>(NormalForm::kNfd);
  if (kind == "NFKC") return std::make_unique<InNormalForm>(NormalForm::kNfkc);
  if (kind == "NFKD") return std::make_unique<InNormalForm>(NormalForm::kNfkd);
  return nullptr;
}

}  // namespace levin::text
