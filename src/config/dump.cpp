#include "config/dump.h"

#include "config/fields.h"
#include "core/text.h"

namespace normscope {
namespace {

// The JSON pointer of a dotted key. The members of an object are in `inside`: "/properties/" in a schema, "/"
// in a config.
Json::json_pointer pointer_to(std::string_view key, const std::string& inside) {
  return Json::json_pointer(inside + join(split(key, '.'), inside));
}

// The tables of norms and placements, for scripts: {name: row}. A factor (b n)^e is [b, e], (ln(b n))^e is
// [b, e, "log"].
void add_tables(Json& root) {
  constexpr const char* over[] = {"nothing", "features", "groups", "batch", "sequence"};
  for (const NormRow& row : norm_table())
    root["x-norms"][row.name] = {
        {"over", over[static_cast<int>(row.over)]}, {"centred", row.centred}, {"alpha", row.has_alpha}};
  const auto power = [](const Power& p) {
    Json list = {p.base, p.exponent};
    if (p.log) list.push_back("log");
    return list;
  };
  // {"first": what its first blocks are, "rest": the other ones, "first_blocks": how many}.
  const auto pattern_of = [](const Placement& row) -> Json {
    if (row.pattern == nullptr) return nullptr;
    constexpr const char* first_blocks[] = {"none", "one", "mix_post_fraction"};
    return {{"first_blocks", first_blocks[static_cast<int>(row.pattern->first_blocks)]},
            {"first", written(row.pattern->first)},
            {"rest", written(row.pattern->rest)}};
  };
  for (const Placement& row : placement_table())
    root["x-placements"][row.name] = {{"norm_in", row.norm_in},
                                      {"norm_branch", row.norm_branch},
                                      {"norm_out", row.norm_out},
                                      {"embed_norm", row.embed_norm},
                                      {"learned_scale", row.learned_scale},
                                      {"inner_norm", row.inner_norm},
                                      {"pattern", pattern_of(row)},
                                      {"final_norm", row.final_norm},
                                      {"residual_scaling", row.residual_scaling},
                                      {"qkv_norm", row.qkv_norm},
                                      {"alpha", power(row.alpha)},
                                      {"input_scale", power(row.input_scale)},
                                      {"init_gain", power(row.init_gain)}};
}

}  // namespace

Json dump(const RunConfig& config) {
  Json root = Json::object();
  for (const Field& field : fields()) {
    const Json value = field.get(config);
    const bool is_missing = field.required && (value == 0 || value.empty());
    if (!is_missing && field.is_used(config)) root[pointer_to(field.key, "/")] = value;
  }
  return root;
}

std::string dump_text(const RunConfig& config) { return json_text(dump(config)); }

Json json_schema() {
  const Json object = {{"type", "object"}, {"additionalProperties", false}};
  Json root = {{"$schema", "http://json-schema.org/draft-07/schema#"}, {"title", "normscope config"}};
  root.update(object);
  const auto add_path = [&](const char* key, const char* description) {
    root["properties"][key] = {{"type", "string"}, {"description", description}, {"x-bookkeeping", true}};
  };
  add_path("$schema", "where editors find this schema; ignored");
  add_path("extends", "another config, under this one; relative to this file");
  for (const Field& field : fields()) {
    for (std::size_t dot = field.key.find('.'); dot != field.key.npos; dot = field.key.find('.', dot + 1)) {
      Json& section = root[pointer_to(field.key.substr(0, dot), "/properties/")];
      if (section.is_null()) section = object;
    }
    Json& property = root[pointer_to(field.key, "/properties/")];
    property["description"] = field.doc + (field.required ? " (required)" : "");
    property.update(field.schema);
    if (!field.default_to.words.empty()) {
      property["description"] = text(field.doc, " (default: ", field.default_to.words, ")");
    } else if (!field.required) {
      property["default"] = field.get(RunConfig{});
    }
    // Scripts judge and label differences of configs by these; see Field.
    if (field.role == KeyRole::bookkeeping) property["x-bookkeeping"] = true;
    if (field.role == KeyRole::text) property["x-text"] = true;
    if (!field.used_if.idle_value.is_null()) property["x-else"] = field.used_if.idle_value;
    if (!field.label.empty()) property["x-label"] = field.label;
  }
  add_tables(root);
  return root;
}

std::string fixed_differences(const RunConfig& a, const RunConfig& b) {
  std::vector<std::string> keys;
  for (const Field& field : fields()) {
    const Json left = field.get(a), right = field.get(b);
    if (left != right && field.is_used(a) && field.is_used(b) && field.role == KeyRole::fixed)
      keys.push_back(text(field.key, " (", quote(left), " -> ", quote(right), ")"));
  }
  return join(keys);
}

}  // namespace normscope
