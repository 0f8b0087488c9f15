// What several tests of readers share: the message of a refusal, and a check that a part of it is there.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <string_view>

#include "core/error.h"

namespace normscope::testing {

// The message with which body() fails, or `accepted`; every failure is the user's, exit 2.
template <class Body>
std::string message(const Body& body, std::string_view accepted = "no error") {
  try {
    body();
  } catch (const Error& error) {
    CHECK(error.exit == Exit::usage);
    return error.what();
  }
  return std::string(accepted);
}

inline bool holds(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

// doctest prints both sides when they differ.
#define CHECK_HOLDS(whole, part)      \
  do {                                \
    const std::string whole_ = whole; \
    CAPTURE(whole_);                  \
    CHECK(holds(whole_, part));       \
  } while (false)

}  // namespace normscope::testing
