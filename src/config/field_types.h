// The types of config values: the allowed values, in words and as JSON Schema, and the reader.
#pragma once

#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

#include "config/fields.h"
#include "core/text.h"

namespace normscope {

template <class T>
struct ValueType {
  std::string allowed;
  Json schema;
  std::function<std::optional<T>(const Json&)> read;  // nullopt: the value is not allowed
  std::vector<std::string> names = {};                // the allowed names, for "did you mean"
};

enum class High { closed, open };  // closed: the upper limit itself is allowed

ValueType<Index> integer(Index low, Index high);
ValueType<double> number(double low, double high = std::numeric_limits<double>::infinity(),
                         High end = High::closed);
ValueType<bool> boolean();
ValueType<bool> boolean_or_auto();  // the loader handles "auto"
ValueType<std::vector<std::string>> paths();
ValueType<std::string> optional_path();
ValueType<std::string> run_name();
ValueType<DepthFactor> depth_factor();                // 0.5, or "L^-0.5"
ValueType<std::vector<BlockPlacement>> placements();  // one for all blocks, or a list with one for each

template <class Enum>
ValueType<Enum> one_of() {
  const Names known = enum_names(Enum{});
  const std::vector<std::string> names(known.begin(), known.end());
  const auto read = [=](const Json& given) -> std::optional<Enum> {
    const auto found = std::ranges::find_if(names, [&](const std::string& name) { return given == name; });
    return found == names.end() ? std::nullopt : std::optional(static_cast<Enum>(found - names.begin()));
  };
  return {join(names, " | "), {{"enum", names}}, read, names};
}

// "got ...; expected ...", and for a misspelt name "; did you mean ...?".
std::string type_error(const Json& got, const std::string& expected,
                       const std::vector<std::string>& names = {});

// Values as a config writes them: an enum by name, a list of one as its entry.
Json written(const DepthFactor& factor);
Json written(const std::vector<std::string>& list);
Json written(const std::vector<BlockPlacement>& list);
template <class T>
Json written(const T& value) {
  if constexpr (std::is_enum_v<T>)
    return name_of(value);
  else
    return value;
}

// A row of the table; `value(config)` is a reference to the member of a RunConfig, const or not.
template <class At, class T>
Field row(std::string key, At value, const ValueType<T>& type, std::string doc, FieldTraits traits = {}) {
  const auto get = [=](const RunConfig& config) { return written(value(config)); };
  const auto set = [=](RunConfig& config, const Json& given) -> std::string {
    std::optional<T> read = type.read(given);
    if (!read) return type_error(given, type.allowed, type.names);
    value(config) = *std::move(read);
    return {};
  };
  return {std::move(traits), std::move(key), std::move(doc), type.allowed, type.schema, get, set};
}

}  // namespace normscope
