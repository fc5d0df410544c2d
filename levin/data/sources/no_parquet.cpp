#include "levin/base/check.h"
#include "levin/data/sources/sources.h"

namespace levin::data {

RecordsPtr parquet(const std::filesystem::path& path) {
  LEVIN_FAIL(
      "data.parquet.library",
      "{} is a Parquet file, but levin was built without Apache Arrow; install Arrow's C++ "
      "library, "
      "or pass -DLEVIN_ARROW=DIR with the folder of Python's pyarrow, and build levin again. Or "
      "convert the file: python -c \"import pandas; pandas.read_parquet('FILE.parquet')"
      ".to_json('FILE.jsonl', orient='records', lines=True)\"",
      path.string());
}

}  // namespace levin::data
