#include "config/field_types.h"

#include "io/utf8.h"

namespace normscope {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// Empty if `path` can be the path of a file.
std::string path_problem(const json& path) {
  if (!path.is_string()) return wrong(path, "a file");
  const auto& written = path.get_ref<const std::string&>();
  if (written.find('\0') != std::string::npos) return "a path cannot hold a NUL character";
  return {};
}

}  // namespace

std::string wrong(const json& got, const std::string& expected, const std::vector<std::string>& names) {
  const std::string meant = got.is_string() ? nearest(got.get_ref<const std::string&>(), names) : "";
  return text("got ", quote(got), "; expected ", expected,
              meant.empty() ? "" : "; did you mean " + meant + "?");
}

Field placements(std::string key, std::string doc) {
  const std::vector<std::string> names = name_list(PlacementKind{});
  std::vector<std::string> in_list = names;
  std::erase(in_list, name_of(PlacementKind::mix));
  Field field = row(std::move(key), join(names, " | ") + ", or a list of n_layer of them (no mix)",
                    at(&RunConfig::model, &ModelConfig::norm_placement), std::move(doc));
  field.schema = {
      {"anyOf", {{{"enum", names}}, {{"type", "array"}, {"items", {{"enum", in_list}}}, {"minItems", 1}}}}};
  field.get = [](const RunConfig& config) {
    const std::vector<PlacementKind>& written = config.model.norm_placement;
    if (written.size() == 1) return ordered_json(name_of(written[0]));
    ordered_json list = ordered_json::array();
    for (const PlacementKind kind : written) list.push_back(name_of(kind));
    return list;
  };
  field.set = [=](RunConfig& config, const json& given) -> std::string {
    std::vector<PlacementKind> read;
    if (given.is_array()) {
      for (const json& entry : given) {
        const auto* found = find_name<PlacementKind>(entry);
        const std::string which = text("entry ", read.size() + 1, ": ");
        if (!found) return which + wrong(entry, join(in_list, " | "), in_list);
        if (found->value == PlacementKind::mix) {
          return which +
                 "mix is a pattern of whole models and cannot stand in a list; write out its pre and post";
        }
        if (found->value == PlacementKind::peri && !read.empty()) {
          return which +
                 "peri can only come first, because it adds a norm on the embeddings; sandwich is the same "
                 "without that norm";
        }
        read.push_back(found->value);
      }
      // A longer list is compared with n_layer in check_config(); a short one would read as 'all blocks'
      // there.
      if (read.empty() || (read.size() == 1 && config.model.n_layer != 1)) {
        return text("a list of ", read.size(), " for model.n_layer = ", config.model.n_layer,
                    "; a list names the placement of every block");
      }
    } else {
      const auto* found = find_name<PlacementKind>(given);
      if (!found) return wrong(given, join(names, " | ") + ", or a list of them", names);
      read = {found->value};
    }
    config.model.norm_placement = std::move(read);
    return {};
  };
  return field;
}

Field paths(std::string key, std::string doc) {
  const auto value = at(&RunConfig::data, &DataConfig::path);
  Field field = row(std::move(key), "a file, or a list of files", value, std::move(doc));
  const json one = {{"type", "string"}, {"minLength", 1}};
  field.schema = {{"anyOf", {one, {{"type", "array"}, {"items", one}, {"minItems", 1}}}}};
  field.get = [=](const RunConfig& config) {
    return value(config).size() == 1 ? ordered_json(value(config)[0]) : ordered_json(value(config));
  };
  field.set = [=](RunConfig& config, const json& given) -> std::string {
    const json list = given.is_array() ? given : json::array({given});
    if (list.empty()) return wrong(given, "a file, or a list of files");
    for (const json& path : list) {
      if (const std::string problem = path_problem(path); !problem.empty()) return problem;
      if (path == "") return wrong(path, "a file, or a list of files");
    }
    value(config) = list.get<std::vector<std::string>>();
    return {};
  };
  return field;
}

Field optional_path(std::string key, std::string doc) {
  const auto value = at(&RunConfig::data, &DataConfig::val_path);
  Field field = row(std::move(key), "a file, or \"\" for none", value, std::move(doc));
  field.schema = {{"type", "string"}};
  field.set = [=](RunConfig& config, const json& given) -> std::string {
    if (const std::string problem = path_problem(given); !problem.empty()) return problem;
    value(config) = given.get<std::string>();
    return {};
  };
  return field;
}

Field run_name(std::string key, std::string doc) {
  constexpr std::size_t longest = 200;  // a file name may have 255 bytes, and some get an ending
  Field field =
      row(std::move(key), "text without slash or leading dot", at(&RunConfig::name), std::move(doc));
  field.schema = {{"type", "string"}, {"pattern", "^[^./][^/]*$"}};
  field.set = [](RunConfig& config, const json& given) -> std::string {
    if (!given.is_string()) {
      return wrong(given, "text") + (given.is_primitive() ? text("; as text: '\"", quote(given), "\"'") : "");
    }
    const std::string name = given.get<std::string>();
    const char* problem = name.empty()                          ? "is empty"
                          : name[0] == '.'                      ? "begins with a dot"
                          : name.find('/') != std::string::npos ? "holds a slash"
                          : name.size() > longest               ? "is longer than 200 bytes"
                          : escape_controls(name) != name       ? "holds a control character"
                                                                : nullptr;
    if (problem) return text(quote(given), " ", problem, "; it names the run's folder");
    config.name = name;
    return {};
  };
  return field;
}

}  // namespace normscope
