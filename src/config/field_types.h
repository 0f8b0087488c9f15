// The types that a config's values have: one function a type makes a row of the field table, and says how
// such a value is read, checked, dumped and described.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "config/fields.h"
#include "config/names.h"
#include "core/nearest.h"
#include "core/text.h"
#include "io/json.h"

namespace normscope {

// --- where a value lives in RunConfig: functions that give a reference to it, const or not ---

template <class T>
auto at(T RunConfig::*member) {
  return [=](auto& config) -> auto& { return config.*member; };
}
template <class S, class T>
auto at(S RunConfig::*section, T S::*member) {
  return [=](auto& config) -> auto& { return config.*section.*member; };
}
template <class S, class P, class T>
auto at(S RunConfig::*section, P S::*part, T P::*member) {
  return [=](auto& config) -> auto& { return config.*section.*part.*member; };
}

// --- one function a type of value: how it is read, checked, dumped and described ---

// What is wrong with a value, and where it is a misspelt name, which one was meant.
std::string wrong(const nlohmann::json& got, const std::string& expected,
                  const std::vector<std::string>& names = {});

// A row whose value dumps as itself.
template <class At>
Field row(std::string key, std::string allowed, At value, std::string doc) {
  Field field;
  field.key = std::move(key);
  field.allowed = std::move(allowed);
  field.doc = std::move(doc);
  field.get = [=](const RunConfig& config) { return nlohmann::ordered_json(value(config)); };
  return field;
}

template <class At>
Field integer(std::string key, Index low, Index high, At value, std::string doc) {
  Field field = row(std::move(key), text("integer, ", low, "..", high), value, std::move(doc));
  field.schema = {{"type", "integer"}, {"minimum", low}, {"maximum", high}};
  field.set = [=](RunConfig& config, const nlohmann::json& given) -> std::string {
    const std::optional<Index> number = whole_number(given);
    if (!number || *number < low || *number > high)
      return wrong(given, text("an integer, ", low, "..", high));
    value(config) = *number;
    return {};
  };
  return field;
}

struct Range {
  double low, high;
  bool open_high = false;  // `high` itself is out
};
constexpr double no_limit = std::numeric_limits<double>::infinity();

template <class At>
Field number(std::string key, Range range, At value, std::string doc) {
  const std::string words = range.high == no_limit
                                ? text(">= ", range.low)
                                : text("in [", range.low, ", ", range.high, range.open_high ? ')' : ']');
  Field field = row(std::move(key), "number " + words, value, std::move(doc));
  field.schema = {{"type", "number"}, {"minimum", range.low}};
  if (range.high != no_limit) field.schema[range.open_high ? "exclusiveMaximum" : "maximum"] = range.high;
  field.set = [=](RunConfig& config, const nlohmann::json& given) -> std::string {
    const double x = given.is_number() ? given.get<double>() : std::nan("");
    const bool inside = x >= range.low && (range.open_high ? x < range.high : x <= range.high);  // NaN is not
    if (!inside) return wrong(given, "a number " + words);
    value(config) = x;
    return {};
  };
  return field;
}

template <class At>
Field boolean(std::string key, At value, std::string doc) {
  Field field = row(std::move(key), "true | false", value, std::move(doc));
  field.schema = {{"type", "boolean"}};
  field.set = [=](RunConfig& config, const nlohmann::json& given) -> std::string {
    if (!given.is_boolean()) return wrong(given, "true or false");
    value(config) = given.get<bool>();
    return {};
  };
  return field;
}

template <class Enum>
std::vector<std::string> name_list(Enum which) {
  std::vector<std::string> names;
  for (const auto& row : names_of(which)) names.push_back(row.name);
  return names;
}

template <class Enum>
const Named<Enum>* find_name(const nlohmann::json& given) {
  for (const Named<Enum>& row : names_of(Enum{})) {
    if (given == row.name) return &row;
  }
  return nullptr;
}

template <class At>
Field choice(std::string key, At value, std::string doc) {
  using Enum = std::remove_cvref_t<decltype(value(std::declval<RunConfig&>()))>;
  const std::vector<std::string> names = name_list(Enum{});
  Field field = row(std::move(key), join(names, " | "), value, std::move(doc));
  field.schema = {{"enum", names}};
  field.get = [=](const RunConfig& config) { return nlohmann::ordered_json(name_of(value(config))); };
  field.set = [=](RunConfig& config, const nlohmann::json& given) -> std::string {
    const Named<Enum>* found = find_name<Enum>(given);
    if (!found) return wrong(given, join(names, " | "), names);
    value(config) = found->value;
    return {};
  };
  return field;
}

// One placement for all blocks, or a list with one for each.
Field placements(std::string key, std::string doc);

// data.path. Paths are stored as they are written; the loader, which knows from where they count, makes them
// absolute.
Field paths(std::string key, std::string doc);

// data.val_path.
Field optional_path(std::string key, std::string doc);

// The name of a run, which is the name of its folder.
Field run_name(std::string key, std::string doc);

// true, false, or "auto" for the default.
template <class At>
Field boolean_or_auto(std::string key, At value, std::string doc) {
  Field field = row(std::move(key), "true | false | \"auto\"", value, std::move(doc));
  field.takes_auto = true;
  field.schema = {{"enum", {true, false, "auto"}}};
  field.set = [=](RunConfig& config, const nlohmann::json& given) -> std::string {
    if (!given.is_boolean()) return wrong(given, "true, false or \"auto\"");
    value(config) = given.get<bool>();
    return {};
  };
  return field;
}

}  // namespace normscope
