// The training text and the validation text of a run.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/random.h"
#include "core/types.h"
#include "data/vocabulary.h"

namespace normscope {

struct Corpus {
  std::vector<Token> train;
  std::vector<Token> val;  // empty without a validation part
  Vocabulary vocab;        // of both parts
  std::uint64_t hash = 0;  // FNV-1a 64 of the bytes of every file, in order, `val_path` last
};

// Reads `paths`, one after the other, as one text. Its last part (`val_fraction`) is for validation; with a
// `val_path` that file is, and all of `paths` is for training. `context` is T: a training sequence takes T+1
// characters. Usage Errors `[corpus] ...`: a file that is missing, empty or not UTF-8, a part too short.
Corpus load_corpus(const std::vector<std::string>& paths, double val_fraction, const std::string& val_path,
                   Index context);

// A file's characters, without a leading BOM. Continues `hash`, if given, over the file's bytes.
std::u32string read_text(const std::string& path, std::uint64_t* hash = nullptr);

// floor((1 - val_fraction) * characters), exactly: 0.9 of 10 leaves 1, though 1 - 0.9 is a little under 0.1.
Index training_characters(Index characters, double val_fraction);

}  // namespace normscope
