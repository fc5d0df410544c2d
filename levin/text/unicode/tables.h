#pragma once
// The data of unicode.h as it is committed: lists of numbers, 7 bits a byte, in base64.
// Not for users.

namespace levin::text::unicode {

extern const char* const kPaletteTable;  ///< distinct words of traits: a category and flags
extern const char* const kTraitsTable;   ///< (length of a run of code points, place in the palette)
extern const char* const kScriptsTable;  ///< (length, number of a script's name, 0 for none)
extern const char* const kSplitScriptsTable;      ///< (length, class of UnicodeScripts, 0 for any)
extern const char* const kCombiningClassesTable;  ///< (length, class)
extern const char* const kCanonicalTable;  ///< (code points on, length, what it decomposes into)
extern const char* const kCompatibilityTable;  ///< the same, for code points that differ
extern const char* const kLowercaseTable;      ///< the same
extern const char* const kPairsTable;          ///< (first, second, what they compose to)
extern const char* const kFoldsTable;          ///< (length, code points that are one to (?i))
extern const char* const kPosixTable;  ///< (length, code points from border to border), 7 sets
extern const char* const kScriptNamesTable;  ///< as Oniguruma knows them, blanks between

}  // namespace levin::text::unicode
