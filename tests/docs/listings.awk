# The C++ listings of the guides as one source: awk -v frames=DIR -f listings.awk README.md docs/*.md
#
# A listing with a main stands as it is. Of others a comment above says which frame they stand in, a
# source with a line "// LISTING" in its place:
#
#   <!-- frame: loop -->               tests/docs/frames/loop.cpp
#   <!-- source: levin/x.cpp -->       the text of that file, which is compiled where it stands
#   <!-- frames: torch_loop, loop -->  of a diff: of what it takes away, and of what it puts there
#
# Each is a namespace with a function run, and what the compiler says of it has the guide's line.

function fail(what) {
  printf "%s:%d: %s\n", FILENAME, FNR, what > "/dev/stderr"
  failed = 1
  exit 1
}

function emit(text) { source = source text "\n" }

function open_listing() {
  count++
  emit("namespace listing_" count " {")
  table = table "    {\"" FILENAME ":" first "\", listing_" count "::run},\n"
}

function in_frame(name, lines,    path, line, number, there) {
  path = frames "/" name ".cpp"
  open_listing()
  emit("#line 1 \"tests/docs/frames/" name ".cpp\"")
  while ((getline line < path) > 0) {
    number++
    if (line ~ /^ *\/\/ LISTING$/) {
      there = 1
      emit("#line " first " \"" FILENAME "\"\n" lines "#line " number + 1 " \"tests/docs/frames/" name ".cpp\"")
    } else {
      emit(line)
    }
  }
  close(path)
  if (!there) fail("there is no frame '" name "' with a line // LISTING in " frames)
  emit("}  // namespace\n")
}

function whole(lines) {
  open_listing()
  sub(/int main\(int argc, char\*\* argv\)/, "void run(int argc, char** argv)", lines)
  emit("#line " first " \"" FILENAME "\"\n" lines "}  // namespace\n")
}

function side(lines, sign,    parts, i, n, result) {
  n = split(lines, parts, "\n")
  for (i = 1; i < n; i++) {
    if (substr(parts[i], 1, 1) == " " || parts[i] == "") result = result substr(parts[i], 2) "\n"
    else if (substr(parts[i], 1, 1) == sign) result = result substr(parts[i], 2) "\n"
    else result = result "\n"  # so that lines keep their numbers
  }
  return result
}

function same_as_source(    line, text) {
  while ((getline line < source_file) > 0) text = text line "\n"
  close(source_file)
  if (text != raw) fail("this listing is not " source_file " any more")
}

function close_listing(    names) {
  if (source_file != "") same_as_source()
  else if (language == "cpp" && block ~ /int main\(/) whole(block)
  else if (frame == "") fail("wanted a comment above that names the frame of this listing")
  else if (language == "cpp") in_frame(frame, block)
  else if (split(frame, names, ", ") == 2) {
    in_frame(names[1], side(block, "-"))
    in_frame(names[2], side(block, "+"))
  } else fail("wanted the frames of both sides of this diff")
}

FNR == 1 { language = ""; frame = ""; source_file = "" }
/^```/ {
  if (language == "") {
    language = substr($0, 4)
    block = ""
    raw = ""
    first = FNR + 1
  } else {
    if (language == "cpp" || language == "diff") close_listing()
    language = ""
    frame = ""
    source_file = ""
  }
  next
}
language != "" {
  raw = raw $0 "\n"
  if (language == "cpp" && /^#include/) {
    if (!index(includes, $0 "\n")) includes = includes $0 "\n"
    block = block "\n"
  } else {
    block = block $0 "\n"
  }
  next
}
/^<!-- frames?: / {
  frame = $0
  sub(/^<!-- frames?: /, "", frame)
  sub(/ -->.*$/, "", frame)
  next
}
/^<!-- source: / {
  source_file = $0
  sub(/^<!-- source: /, "", source_file)
  sub(/ -->.*$/, "", source_file)
  next
}
/[^ ]/ { frame = ""; source_file = "" }

END {
  if (failed) exit 1
  printf "%s#include \"tests/docs/listings.h\"\n#include \"tests/docs/frames/given.h\"\n\n%s", includes, source
  printf "const std::vector<Listing> listings = {\n%s};\n", table
}
