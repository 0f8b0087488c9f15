// What fuzz targets share. A target is one file beside this one: sound inputs to start from, and what must
// hold whatever the bytes are. The same file runs under libFuzzer (NORMSCOPE_FUZZ) and, in every build, under
// the small mutator of driver.cpp.
//
// Around each input, fuzz.cpp checks what all readers owe: they throw nothing but Error, `[where] what`,
// and allocate nothing large for a small input.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace normscope::fuzz {

// --- a target's own ---

// Inputs that the reader accepts.
std::vector<std::string> seeds();

// Reads `bytes`, checks the result. Error: they were refused.
void run(std::string_view bytes);

// --- helpers of targets ---

// Ends the program, loudly, unless `holds`.
void expect(bool holds, const char* what);

// The path of a file in memory with this content, until the next call.
const std::string& file_with(std::string_view bytes);

// --- drivers ---

// The seeds, each of them tried.
std::vector<std::string> sound_seeds();

// Runs one input and checks what all readers owe.
void run_guarded(std::string_view bytes);

}  // namespace normscope::fuzz
