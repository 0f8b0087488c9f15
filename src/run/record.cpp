#include "run/record.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "io/file.h"

namespace normscope {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const std::optional<FirstNonfinite>& first) {
  const bool is_site = first->param.empty();
  return {{"step", first->step},
          {"layer", first->layer},
          {is_site ? "site" : "param", is_site ? first->site : first->param},
          {"kind", first->in_gradient ? "gradient" : "value"}};
}
template <class Number>
Json json_of(const std::optional<Number>& number) {
  return number ? Json(*number) : nullptr;  // numbers that are not finite are printed as null too
}
template <class Value>
Json json_of(const Value& value) {
  return value;
}

// Each sets `out` if the JSON value has its type.
void read_value(const Json& json, std::string& out) {
  if (json.is_string()) out = json;
}
void read_value(const Json& json, std::optional<double>& out) {
  if (json.is_number()) out = json.get<double>();
}
void read_value(const Json& json, Index& out) {
  if (json.is_number() && json >= 0 && json < 0x1p53) out = json.get<Index>();
}
void read_value(const Json& json, std::optional<Index>& out) {
  if (json.is_number()) read_value(json, out.emplace());
}
void read_value(const Json& json, std::optional<FirstNonfinite>& out) {
  if (!json.is_object()) return;
  const auto member = [&](const char* key) { return json.value(key, Json()); };
  read_value(member("step"), out.emplace().step);
  read_value(member("layer"), out->layer);
  read_value(member("site"), out->site);
  read_value(member("param"), out->param);
  out->in_gradient = member("kind") == "gradient";
}

Json::json_pointer pointer_to(const RecordField& field) { return Json::json_pointer(text('/', field.key)); }

}  // namespace

const std::vector<RecordField>& record_fields() {
  using R = RunRecord;
  using enum Digits;
  // clang-format off
  static const std::vector<RecordField> fields = {
      {.key = "status", .member = &R::status, .sweep = 1},
      {.key = "steps", .member = &R::steps, .sweep = 7},
      {.key = "params", .member = &R::params},
      {.key = "vocab", .member = &R::vocab},
      {.key = "corpus_hash", .member = &R::corpus_hash},
      {.key = "final_train_loss", .member = &R::final_train_loss, .sweep = 2, .compare = 3, .title = "final train"},
      {.key = "final_val_loss", .member = &R::final_val_loss, .sweep = 4, .compare = 2, .title = "final val"},
      {.key = "best_val_loss", .member = &R::best_val_loss, .sweep = 3, .compare = 1, .title = "best val"},
      {.key = "best_step", .member = &R::best_step, .trained = true},
      {.key = "grad_first_last", .member = &R::grad_first_last, .sweep = 5,
       .compare = 4, .title = "grad first/last", .digits = ratio},
      {.key = "growth", .member = &R::growth, .sweep = 6, .compare = 5, .title = "growth", .digits = ratio},
      {.key = "branch_share", .member = &R::branch_share, .trained = true},
      {.key = "unigram", .member = &R::unigram, .trained = true},
      {.key = "skipped", .member = &R::skipped, .trained = true},
      {.key = "seconds", .member = &R::seconds, .trained = true, .sweep = 8},
      {.key = "tokens_per_s", .member = &R::tokens_per_s, .trained = true, .sweep = 9,
       .compare = 6, .title = "tokens/s", .digits = speed},
      {.key = "peak_rss_mb", .member = &R::peak_rss_mb},
      {.key = "ranks", .member = &R::ranks, .trained = true},
      {.key = "threads", .member = &R::threads},
      {.key = "precision", .member = &R::precision},
      {.key = "gemm", .member = &R::gemm},
      {.key = "blas/flavour", .member = &R::blas_flavour},
      {.key = "blas/version", .member = &R::blas_version},
      {.key = "blas/kernel", .member = &R::blas_kernel},
      {.key = "cpu", .member = &R::cpu},
      {.key = "isa", .member = &R::isa},
      {.key = "compiler", .member = &R::compiler},
      {.key = "libc", .member = &R::libc},
      {.key = "version", .member = &R::version},
      {.key = "commit", .member = &R::commit},
      {.key = "trajectory_hash", .member = &R::trajectory_hash, .trained = true},
      {.key = "first_nonfinite", .member = &R::first_nonfinite, .nonfinite = true},
      {.key = "story", .member = &R::story, .trained = true, .nonfinite = true},
  };
  // clang-format on
  return fields;
}

std::vector<RecordField> fields_by(int RecordField::*column) {
  std::vector<RecordField> fields = record_fields();
  std::erase_if(fields, [column](const RecordField& field) { return field.*column == 0; });
  std::ranges::sort(fields, {}, column);
  return fields;
}

void add_cell(CsvRows& row, const RecordField& field, const RunRecord& run) {
  const auto add = [&](auto member) {
    if constexpr (!std::is_same_v<decltype(member), std::optional<FirstNonfinite> RunRecord::*>)
      row.cell(run.*member);
  };
  std::visit(add, field.member);
}

void write_record(const std::string& path, const RunRecord& run) {
  Json json;
  for (const RecordField& field : record_fields()) {
    if ((field.trained && run.status == status_probe) || (field.nonfinite && !run.first_nonfinite)) continue;
    std::visit([&](auto member) { json[pointer_to(field)] = json_of(run.*member); }, field.member);
  }
  write_atomically(path, json.dump(2), "\n");
}

bool read_record(const std::string& path, RunRecord& run) {
  const Json json = Json::parse(read_file(path), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return false;
  for (const RecordField& field : record_fields()) {
    if (!json.contains(pointer_to(field))) continue;
    std::visit([&](auto member) { read_value(json[pointer_to(field)], run.*member); }, field.member);
  }
  return true;
}

}  // namespace normscope
