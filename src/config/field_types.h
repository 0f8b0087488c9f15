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
  nlohmann::ordered_json schema;
  std::function<std::optional<T>(const nlohmann::json&)> read;  // nullopt: the value is not allowed
  std::vector<std::string> names = {};                          // the allowed names, for "did you mean"
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
ValueType<DepthFactor> depth_factor();  // 0.5, or "L^-0.5"
void to_json(nlohmann::ordered_json& json, const DepthFactor& factor);

template <class Enum>
ValueType<Enum> one_of() {
  const Names known = enum_names(Enum{});
  const std::vector<std::string> names(known.begin(), known.end());
  const auto read = [=](const nlohmann::json& given) -> std::optional<Enum> {
    const auto found = std::ranges::find_if(names, [&](const std::string& name) { return given == name; });
    return found == names.end() ? std::nullopt : std::optional(static_cast<Enum>(found - names.begin()));
  };
  return {join(names, " | "), {{"enum", names}}, read, names};
}

// "got ...; expected ...", and for a misspelt name "; did you mean ...?".
std::string type_error(const nlohmann::json& got, const std::string& expected,
                       const std::vector<std::string>& names = {});

// A value as a config writes it: an enum by name, a list of one file as that file.
template <class T>
nlohmann::ordered_json to_json(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return name_of(value);
  } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
    return value.size() == 1 ? nlohmann::ordered_json(value[0]) : nlohmann::ordered_json(value);
  } else {
    return value;
  }
}

// A function from a RunConfig, const or not, to a reference to the value that the members lead to.
template <class... Members>
auto at(Members... members) {
  return [=](auto& config) -> auto& { return (config.*....*members); };
}

template <class At, class T>
Field make_field(std::string key, At value, const ValueType<T>& type, std::string doc, FieldTraits traits) {
  const auto get = [=](const RunConfig& config) { return to_json(value(config)); };
  const auto set = [=](RunConfig& config, const nlohmann::json& given) -> std::string {
    std::optional<T> read = type.read(given);
    if (!read) return type_error(given, type.allowed, type.names);
    value(config) = *std::move(read);
    return {};
  };
  return {std::move(traits), std::move(key), type.allowed, std::move(doc), type.schema, get, set};
}

// model.norm_placement: one for all blocks, or a list with one for each block.
Field placement_field(std::string key, std::string doc, FieldTraits traits);

}  // namespace normscope
