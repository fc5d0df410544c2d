#include "tests/fuzz/seeds.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "levin/files/safetensors.h"
#include "tests/interchange/small_programs.h"
#include "tests/support/small_images.h"

namespace levin::fuzz {
namespace {

namespace fs = std::filesystem;

void put(const fs::path& root, const char* format, const char* name, std::string_view bytes) {
  fs::create_directories(root / format);
  std::ofstream(root / format / name, std::ios::binary) << bytes;
}

/// Of bytes that may be zero.
template <size_t N>
constexpr std::string_view bytes(const char (&text)[N]) {
  return {text, N - 1};
}

void put_safetensors(const fs::path& root) {
  fs::create_directories(root / "safetensors");
  const std::vector<std::byte> data(24, std::byte{1});
  levin::files::write_safetensors(
      root / "safetensors/two",
      std::vector<levin::files::TensorEntry>{{"w", "F32", {2, 3}, data},
                                             {"n", "U8", {}, std::span(data).first(1)}},
      {{"format", "pt"}});
  levin::files::write_safetensors(root / "safetensors/none", {});
}

void put_rows(const fs::path& root) {
  put(root, "records", "lines",
      "{\"text\": \"a \\u00e9\", \"label\": 1}\n\n[]\n{\"list\": [1, null, {}], \"x\": -0.5}\n");
  put(root, "records", "csv", "text,label\n\"a, \"\"b\"\"\r\nc\",1\r\n,2\nx,\n");
  const std::vector<int32_t> tokens = {1, ~2, 3, 4, 5};
  const std::vector<int64_t> offsets = {0, 2, 5}, rows = {0, 2}, order = {1, 0}, labels = {1, 0};
  const auto bytes_of = [](const auto& list) { return std::as_bytes(std::span(list)); };
  const auto put_one = [&](const char* name, bool is_packed, int64_t parts) {
    fs::create_directories(root / "rows");
    const std::string about =
        std::string(R"({"parts": )") + std::to_string(parts) + R"(, "is_packed": )" +
        (is_packed ? "true" : "false") +
        R"(, "label_kind": 1, "label_count": 2, "label_names": [], "rows": 2, "samples": 1, "tokens": 5,)"
        R"( "counted": 4, "truncated": 0, "dropped": 0, "longest": 5})";
    std::vector<levin::files::TensorEntry> entries = {{"tokens", "I32", {5}, bytes_of(tokens)},
                                                      {"second", "I32", {5}, bytes_of(tokens)},
                                                      {"offsets", "I64", {3}, bytes_of(offsets)}};
    if (is_packed) {
      entries.push_back({"row_offsets", "I64", {2}, bytes_of(rows)});
      entries.push_back({"row_sequences", "I64", {2}, bytes_of(order)});
    }
    if (parts == 1) entries.push_back({"labels", "I64", {2}, bytes_of(labels)});
    levin::files::write_safetensors(root / "rows" / name, entries, {{"about", about}});
  };
  put_one("packed", true, 1);
  put_one("padded", false, 1);
  put_one("pairs", false, 2);
}

void put_idx(const fs::path& root) {
  put(root, "idx", "bytes",
      bytes("\0\0\x08\x02\0\0\0\x02\0\0\0\x03"
            "abcdef"));
  put(root, "idx", "floats", bytes("\0\0\x0d\x01\0\0\0\x01\x3f\x80\0\0"));
}

void put_images(const fs::path& root) {
  put(root, "png", "rgb", test::kRgbPng);
  put(root, "png", "gray16", test::kGray16Png);
  put(root, "png", "palette", test::kPalettePng);
  put(root, "png", "interlaced", test::kInterlacedPng);
  put(root, "jpeg", "gray", test::kGrayJpeg);
  put(root, "jpeg", "progressive", test::kColorJpeg);
  put(root, "jpeg", "cmyk", test::kCmykJpeg);
}

void put_tokens(const fs::path& root) {
  // 82 bytes of Megatron's index: two sequences of 3 and 2 tokens, one document.
  put(root, "tokens", "megatron",
      bytes("\x52\0MMIDIDX\0\0\1\0\0\0\0\0\0\0\x08\2\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0"
            "\3\0\0\0\2\0\0\0\0\0\0\0\0\0\0\0\6\0\0\0\0\0\0\0"
            "\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0abcdefghij"));
  put(root, "tokens", "plain", bytes("\0\0abcdefghij"));
  std::string llmc(2 + 1024, '\0');  // magic 20240520, version 1, 5 tokens
  llmc.replace(2, 12, bytes("\x88\xd8\x34\x01\1\0\0\0\5\0\0\0"));
  put(root, "tokens", "llmc", llmc + "abcdefghij");
}

void put_arrays(const fs::path& root) {
  put(root, "arrays", "npy",
      bytes("\223NUMPY\1\0\072\0{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }\n"
            "\0\0\200\077"));
  // Two arrays, one of them deflated.
  put(root, "arrays", "npz",
      bytes(
          "PK\003\004\024\000\000\000\010\000\000\000!P~\236\327\317L\000\000\000\206\000\000\000"
          "\005\000\000\000a.npy\233\354\027\352\033\020\311\310P\306P\255\236\222Z\234\\\244n\245"
          "\240^Sj\250\256\243\240\236\226_TR\224\230\027\237_\224\222\012\022wK\314)N\005\212\027g"
          "$\026\244\002\371\032F:\012\306\232:\012\265\012d\003.\006F&f\026V\000PK\003\004\024\000"
          "\000\000\000\000\000\000!P\231bw\337\202\000\000\000\202\000\000\000\005\000\000\000b.np"
          "y\223NUMPY\001\000v\000{'descr': '|u1', 'fortran_order': False, 'shape': (2,), }        "
          "                                                    \012\000\001PK\001\002\024\003\024"
          "\000\000\000\010\000\000\000!P~\236\327\317L\000\000\000\206\000\000\000\005\000\000\000"
          "\000\000\000\000\000\000\000\000\200\001\000\000\000\000a.npyPK\001\002\024\003\024\000"
          "\000\000\000\000\000\000!P\231bw\337\202\000\000\000\202\000\000\000\005\000\000\000\000"
          "\000\000\000\000\000\000\000\200\001o\000\000\000b.npyPK\005\006\000\000\000\000\002\000"
          "\002\000f\000\000\000\024\001\000\000\000\000"));
  // The header's fields: name, size, checksum, kind.
  const auto entry = [](const std::string& name, const std::string& data, char kind) {
    std::string header(512, '\0');
    header.replace(0, name.size(), name);
    header.replace(124, 11, "0000000000" + std::to_string(data.size()));
    header.replace(148, 8, "        ");
    header[156] = kind;
    size_t sum = 0;
    for (const char byte : header) sum += static_cast<uint8_t>(byte);
    for (size_t i = 6; i-- > 0; sum /= 8) header[148 + i] = static_cast<char>('0' + sum % 8);
    header[154] = '\0';
    return header + data + std::string((512 - data.size() % 512) % 512, '\0');
  };
  put(root, "tar", "two", entry("a/1.cls", "7\n", '0') + entry("a/1.txt", "text", '0'));
  put(root, "tar", "names", entry("long", "a/2.txt", 'L') + entry("s", "x", '0'));
}

// The first byte says whether a file or a command line follows.
void put_options(const fs::path& root) {
  put(root, "options", "file",
      "0epochs = 3\nlr = 1e-3\nshuffle = false\nname = \"a \\\"b\\\" \\u00e4\"\nsizes = [1, 2]\n"
      "names = ['a', '']\nclip = \"none\" # no limit\n");
  put(root, "options", "texts", "0name = '''\n a '''\nsizes = \"1,2\"\nclip = 0.5\nlr = +inf\n");
  put(root, "options", "tables", "0[table]\na.b = {c = 1979-05-27T07:32:00Z}\n[[list]]\n");
  put(root, "options", "line", "1--epochs\n7\n--lr=0.5\n--no-shuffle\n--sizes\n1,2\n--names=a,,");
}

void put_hosts(const fs::path& root) {
  put(root, "host_list", "names", "n[08-10,12],r[1-2]n[0,5]-ib,login");
  put(root, "host_list", "counts", "2(x3),1");
  put(root, "hostfile", "two", "# all\ngpu1 slots=4  # the first\n\nuser@gpu2\n");
}

void put_states(const fs::path& root) {
  put(root, "state", "all",
      R"({"a": {"b": {"$tensor": "w"}}, "c": {"$number": "nan"}, "d": 1.5, "e": -3, "f": true,)"
      R"( "g": "text \u00e4", "h": {}})");
  // Of a training state whose number of processes nobody has counted to.
  put(root, "state", "processes",
      R"({"data": {}, "epoch_values": {"size": 0}, "loaders": {"0": {"epoch": 1, "samples": 0, "seed": 1,)"
      R"( "size": 2000}}, "processes": 4611686018427387904, "progress": {"batch": 0, "epoch": 1}})");
  // Of two ranks, one of which has read a sample.
  const std::string rank =
      R"("batches": 1, "batch_size": 2, "epoch": 0, "seed": 7, "num_shards": 3, "shuffle_buffer_size": 0,)"
      R"( "turn": 0, "world_size": 2, "places": {"$tensor": "places"})";
  put(root, "loader", "two",
      R"({"0": {"rank": 0, )" + rank + R"(}, "1": {"rank": 1, )" + rank + "}}");
  put(root, "loader", "before",
      R"({"0": {"rank": 0, "read_before": {"000": {"num_ranks": 2, "bounds": {"$tensor": "bounds"}}}, )" +
          rank + R"(}, "1": {"rank": 1, )" + rank + "}}");
  put(root, "checkpoint", "manifest",
      R"({"files": {"model.safetensors": {"size": 64, "xxh3": "0123456789abcdef"},)"
      R"( "training_state.json": {"size": 2, "xxh3": "0"}, "training_state.safetensors":)"
      R"( {"size": 64, "xxh3": "0"}}, "format": 1, "seal": "0123456789abcdef"})");
}

// The first letter says which message follows.
void put_messages(const fs::path& root) {
  put(root, "messages", "info",
      R"(i{"host":"gpu1","num_ranks":8,"node_rank":-1,"addresses":["10.0.0.3"]})");
  put(root, "messages", "report",
      R"(r{"signal":15,"failure":{"rank":3,"host":"gpu1","pid":77,"exit_code":1,"signal":0,)"
      R"("last_lines":["a","b"],"text":"why","worth_a_restart":true}})");
  put(root, "messages", "plan",
      R"(p{"attempt":1,"max_restarts":3,"nodes":[{"agent":0,"num_ranks":8},{"agent":1,"num_ranks":4}]})");
  put(root, "messages", "stop", R"(s{"gently":true,"why":"rank 3 failed"})");
  put(root, "messages", "end", R"(e{"exit_code":7,"why":"rank 3 failed"})");
  put(root, "messages", "sealed", "0123456789abcdef0123456789abcdef01{}");
  put(root, "flight", "two",
      R"([{"group":"world","number":1,"operation":"barrier","started_s_ago":2.5,"finished_s_ago":2},)"
      R"( {"group":"world/part0","number":2,"operation":"all_reduce of 40 x Float",)"
      R"("started_s_ago":1e-3,"finished_s_ago":-1}])");
}

void put_shards(const fs::path& root) {
  put(root, "shards", "two",
      R"({"metadata": {"total_size": 20}, "weight_map": {"a": "model-00001-of-00002.safetensors",)"
      R"( "b": "model-00002-of-00002.safetensors"}})");
  put(root, "shards", "above", R"({"weight_map": {"c": "../model.safetensors"}})");
}

void put_tokenizers(const fs::path& root) {
  put(root, "tokenizer", "bert",
      bytes(
          R"({"version": "1.0", "truncation": {"direction": "Right", "max_length": 8, "strategy": "LongestFirst",)"
          R"( "stride": 1}, "padding": {"strategy": {"Fixed": 4}, "pad_id": 0}, "added_tokens": [{"id": 9,)"
          R"( "content": "<s>", "lstrip": true, "rstrip": true, "single_word": false, "normalized": true,)"
          R"( "special": true}], "normalizer": {"type": "Sequence", "normalizers": [{"type": "BertNormalizer"},)"
          R"( {"type": "NFKC"}, {"type": "Replace", "pattern": {"Regex": " {2,}|^"}, "content": "-"},)"
          R"( {"type": "Strip"}]}, "pre_tokenizer": {"type": "BertPreTokenizer"}, "post_processor":)"
          R"( {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x"}}, {"Sequence": {"id": "A"}}],)"
          R"( "pair": [{"Sequence": {"id": "B"}}], "special_tokens": {"x": {"ids": [7], "tokens": ["x"]}}},)"
          R"( "decoder": {"type": "WordPiece"}, "model": {"type": "WordPiece", "vocab": {"[UNK]": 0, "hel": 1,)"
          R"( "##lo": 2, "world": 3, "##s": 4}}})"
          "\0Hello  World \xc3\xa9<s>"));
  put(root, "tokenizer", "byte_level",
      R"({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex":)"
      R"( "(?i:'s|(?<=a)b)|[^\\r\\n\\p{L}&&[^a]]?\\p{L}++|\\p{N}{1,3}|\\s+(?!\\S)|(?>x*?y)z"}, "behavior": "Isolated",)"
      R"( "invert": false}, {"type": "ByteLevel", "add_prefix_space": true}]}, "post_processor": {"type":)"
      R"( "RobertaProcessing", "sep": ["s", 1], "cls": ["c", 2]}, "decoder": {"type": "ByteLevel"}, "model":)"
      R"( {"type": "BPE", "unk_token": "?", "fuse_unk": true, "vocab": {"?": 0, "h": 1, "e": 2, "he": 3, "l": 4},)"
      R"( "merges": ["h e"]}})");
  put(root, "tokenizer", "unigram",
      R"({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "BAAAAAAAAABYAA=="}, "pre_tokenizer":)"
      R"( {"type": "Metaspace", "replacement": "_", "prepend_scheme": "first"}, "decoder": {"type": "Sequence",)"
      R"( "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1,)"
      R"( "stop": 0}]}, "model": {"type": "Unigram", "unk_id": 0, "byte_fallback": true, "vocab": [["?", 0.0],)"
      R"( ["_", -1.5], ["l", -2.0], ["ll", -3.0]]}})");
  put(root, "tokenizer", "two_templates",
      R"({"post_processor": {"type": "Sequence", "processors": [{"type": "TemplateProcessing", "single": [],)"
      R"( "pair": [], "special_tokens": {}}, {"type": "TemplateProcessing", "single": [{"Sequence": {"id":)"
      R"( "A", "type_id": 0}}], "pair": [], "special_tokens": {}}]}, "model": {"type": "WordLevel",)"
      R"( "vocab": {"a": 0}}})");
  put(root, "tokenizer", "spaces",
      R"({"added_tokens": [{"content": "\n", "lstrip": true, "rstrip": true, "normalized": false},)"
      R"( {"content": " ", "lstrip": true, "normalized": false}, {"content": "<s>", "rstrip": true,)"
      R"( "normalized": false}], "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "[\\w]+|\\p{Punct}"},)"
      R"( "behavior": "Isolated"}, "model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["#version a"]}})");
  put(root, "tokenizer", "word_level",
      R"({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Punctuation", "behavior":)"
      R"( "MergedWithPrevious"}, {"type": "Digits"}, {"type": "UnicodeScripts"}, {"type": "FixedLength", "length":)"
      R"( 3}, {"type": "CharDelimiterSplit", "delimiter": "e"}, {"type": "Whitespace"}]}, "model": {"type":)"
      R"( "WordLevel", "unk_token": "?", "vocab": {"?": 0}}})");
}

void put_templates(const fs::path& root) {
  put(root, "template", "chat",
      "{% for m in messages %}{{ '<' ~ m.role ~ '>' + m['content'] | trim }}{% if loop.last %}{% "
      "generation %}x{% endgeneration %}"
      "{% endif %}{% endfor %}{%- set ns = namespace(a=1) %}{% set ns.a = ns.a + 1 %}{{ ns.a }}");
  put(root, "template", "tools",
      "{% macro f(a, b=[1, 2][::-1]) %}{{ a | tojson(indent=2) }}{{ b | join(',') }}{{ caller() "
      "}}{% endmacro %}"
      "{% call f({'k': 1.5}, **{'b': 'ab'.split('a')}) %}{% endcall %}{# c #}{% raw %}{{{% endraw "
      "%}"
      "{% for k, v in messages[0] | dictsort if v is string and k not in ['x'] recursive %}{% "
      "break %}{% else %}{% continue %}{% endfor %}");
  put(root, "template", "numbers",
      "{{ 7 // 2 % 3 ** 2 - -1.5e3 }}{{ range(1, 9, 2) | map('string') | list }}{{ '%s' % 1 if x "
      "is defined else none }}"
      "{{ [3, 1] | sort | first }}{{ 'a' * 3 ~ 0x1f }}{% filter upper %}q{% endfilter %}{% with a "
      "= 1 %}{{ a }}{% endwith %}");
}

void put_graphs(const fs::path& root) {
  put(root, "graph", "step",
      "%x = placeholder[\"x\"] : f32[8, 4]\n"
      "%weight = get_attr[\"net.weight\"] : f32[3, 4]\n"
      "%t = aten::t(%weight) : f32[4, 3]{1, 4}\n"
      "%mm = aten::mm(%x, %t) : f32[8, 3]  # 768 flops\n"
      "%rng = random_state() : random\n"
      "%r, %rng_1 = aten::rand([8, 3], dtype=f32, device=cpu, pin_memory=false, rng=%rng)"
      " : f32[8, 3], random\n"
      "%add = aten::add.Tensor(%mm, %r, alpha=2) : f32[8, 3]\n"
      "%cat = aten::cat([%add, %mm], 1) : f32[8, 6]\n"
      "return %cat, none\n"
      "update %weight = %weight\n");
  put(root, "replay", "step",
      "%x = placeholder[\"x\"] : f32[8, 4]\n"
      "%w = placeholder[\"w\"] : f32[3, 4]\n"
      "%t = aten::t(%w) : f32[4, 3]{1, 4}\n"
      "%mm = aten::mm(%x, %t) : f32[8, 3]\n"
      "%soft = aten::_log_softmax(%mm, 1, false) : f32[8, 3]\n"
      "%sort, %order = aten::sort(%soft, 1) : f32[8, 3], i64[8, 3]\n"
      "%a, %b = aten::split.Tensor(%sort, 4) : f32[4, 3], f32[4, 3]\n"
      "%sum = aten::add.Tensor(%a, %b, alpha=2) : f32[4, 3]\n"
      "%cat = aten::cat([%sum, %a], 1) : f32[4, 6]\n"
      "return %cat, %order\n");
  put(root, "replay", "written",
      "%x = placeholder[\"x\"] : f32[2, 3]\n"
      "%row = aten::select.int(%x, 0, 1) : f32[3]\n"
      "%zeros = aten::zeros_like(%row) : f32[3]\n"
      "%more = aten::add_.Tensor(%zeros, %row) : f32[3]\n"
      "%view = aten::view(%more, [3, 1]) : f32[3, 1]\n"
      "%sum = aten::sum.dim_IntList(%view, [0]) : f32[1]\n"
      "return %sum\n"
      "update %x = %x\n");
}

// As Python 3.11 and PyTorch 2.13 write them: a dict of tensors, numbers and lists; the .metadata of one
// tensor [2, 3], whose part has 8192 bytes.
void put_exported(const fs::path& root) {
  fs::create_directories(root / "exported");
  test::SmallProgram program = test::small_linear(at::ones({2, 3}), at::zeros({2}));
  program.write(root / "exported/linear");
  put(root, "exported", "program", program.text().dump());
  auto guarded = program.text();
  guarded["guards_code"] = {"(L['x'].size()[0] % 2) == 0", "2 <= L['x'].stride()[1] < L['y'][0]"};
  program.write(root / "exported/guarded", guarded.dump());
  program.weights_config["lin.weight"]["tensor_meta"]["sizes"][0]["as_int"] = int64_t{1} << 60;
  program.write(root / "exported/large");
  program.graph["tensor_values"]["x"]["sizes"][0] = {
      {"as_expr", {{"expr_str", "2**2**2**2**2 + s0"}}}};
  put(root, "exported", "power", program.text().dump());
}

void put_pickles(const fs::path& root) {
  put(root, "pickle", "state",
      bytes("\200\002}q\000(X\001\000\000\000wq\001ctorch._utils\n"
            "_rebuild_tensor_v2\n"
            "q\002((X\007\000\000\000storageq\003ctorch\n"
            "FloatStorage\n"
            "q\004X\001\000\000\0000q\005X\003\000\000\000cpuq\006K\006tq\007QK\001K\002K\002\206q"
            "\010K"
            "\003K\001\206q\011\211ccollections\n"
            "OrderedDict\n"
            "q\n"
            ")Rq\013tq\014Rq\015X\001\000\000\000pq\016ctorch._utils\n"
            "_rebuild_parameter\n"
            "q\017h\002(("
            "h\003h\004h\005h\006K\006tq\020QK\000K\002K\003\206q\021K\003K\001\206q\022\211h"
            "\n"
            ")Rq\023tq\024Rq\025\210h\n"
            ")Rq\026\207q\027Rq\030X\001\000\000\000nq\031h\002((h\003ctorch\n"
            "LongStorage\n"
            "q\032X\001\000\000\0001q\033h\006K\006tq\034QK\000K\006\205q\035K\001\205q\036\211h\n"
            ")Rq\037tq Rq!X\001\000\000\000oq\"h\n"
            ")Rq#(X\001\000\000\000aq$K\001X\001\000\000\000bq%]q&("
            "G\?\370\000\000\000\000\000\000N\210X"
            "\001\000\000\000xq'\206q(euX\001\000\000\000dq)ctorch\n"
            "device\n"
            "q*X\003\000\000\000cpuq+\205q,Rq-X\001\000\000\000sq.ctorch\n"
            "Size\n"
            "q/K\001K\002\206q0\205q1Rq2u."));
  // Tensors that repeat one element, and whose sizes overflow; one text and one None, many times.
  const auto repeated = [](std::string_view sizes, std::string_view strides) {
    return std::string(bytes("\200\002}X\001\000\000\000wctorch._utils\n_rebuild_tensor_v2\n"
                             "((X\007\000\000\000storagectorch\nFloatStorage\n"
                             "X\001\000\000\0000X\003\000\000\000cpuK\006tQK\000("))
        .append(sizes)
        .append("t(")
        .append(strides)
        .append("t\211NtRs.");
  };
  put(root, "pickle", "stride_0",
      repeated(bytes("\212\010\007\000\000\200\000\000\000\000"), bytes("K\000")));
  const auto two_to_40 = bytes("\212\010\000\000\000\000\000\001\000\000");
  put(root, "pickle", "stride_0_overflow",
      repeated(std::string(two_to_40).append(two_to_40), bytes("K\000K\000")));
  const auto two_to_62 = bytes("\212\010\000\000\000\000\000\000\000\100");
  put(root, "pickle", "empty_overflow",
      repeated(std::string(bytes("K\000")).append(two_to_62).append(two_to_62), "K\001K\001K\001"));
  std::string texts(bytes("\200\002](X\000\002\000\000"));
  texts.append(512, 'x').append(bytes("q\001"));
  for (int i = 0; i < 1000; ++i) texts.append(bytes("h\001"));
  put(root, "pickle", "texts", texts + "e.");
  put(root, "pickle", "nones", "\200\002](" + std::string(3000, 'N') + "e.");
  put(root, "pickle", "lists", "\200\004(" + std::string(3000, ']') + "l.");
  put(root, "pickle", "metadata",
      bytes("\200\004\225<\003\000\000\000\000\000\000\214%torch.distributed.checkpoint."
            "metadata\224\214"
            "\010Metadata\224\223\224)\201\224}\224(\214\023state_dict_metadata\224}"
            "\224\214\001w\224h"
            "\000\214\025TensorStorageMetadata\224\223\224)\201\224}\224(\214\n"
            "properties\224h\000\214\020TensorProperties\224\223\224)\201\224("
            "\214\005torch\224\214\007fl"
            "oat32\224\223\224\214\023torch.serialization\224\214\013_get_"
            "layout\224\223\224\214\015torch"
            ".strided\224\205\224R\224\211h\000\214\024_MEM_FORMAT_"
            "ENCODING\224\223\224K\000\205\224R\224"
            "\211t\224b\214\004size\224\214\005torch\224\214\004Size\224\223\224K\002K\003\206\224"
            "\205"
            "\224R\224\214\006chunks\224]\224h\000\214\024ChunkStorageMetadata\224\223\224)"
            "\201\224}\224("
            "\214\007offsets\224h!K\000K\000\206\224\205\224R\224\214\005sizes\224h!"
            "K\002K\003\206\224"
            "\205\224R\224ubaubs\214\014planner_data\224}\224h\007h\007\205\224s\214\014storage_"
            "data\224}"
            "\224h\000\214\015MetadataIndex\224\223\224)\201\224}\224("
            "\214\003fqn\224h\007\214\005index"
            "\224K\000\214\006offset\224h!K\000K\000\206\224\205\224R\224ub\214'torch.distributed."
            "checkpo"
            "int.filesystem\224\214\014_StorageInfo\224\223\224)\201\224}\224(\214\015relative_"
            "path\224"
            "\214\014__0_0.distcp\224h>K\000\214\006length\224M\000 "
            "ubs\214\007version\224\214\0051.0.0"
            "\224ub."));
}

}  // namespace

void put_seeds(const fs::path& root) {
  put_safetensors(root);
  put_rows(root);
  put_idx(root);
  put_images(root);
  put_arrays(root);
  put_tokens(root);
  put_options(root);
  put_hosts(root);
  put_states(root);
  put_messages(root);
  put_shards(root);
  put_tokenizers(root);
  put_templates(root);
  put_graphs(root);
  put_pickles(root);
  put_exported(root);
}

}  // namespace levin::fuzz
