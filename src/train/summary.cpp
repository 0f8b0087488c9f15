#include "train/summary.h"

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "config/names.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "kernels/simd.h"
#include "train/environment.h"

namespace normscope {
namespace {

using Json = nlohmann::ordered_json;

Json number_or_null(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? Json(*value) : Json(nullptr);
}

Json nonfinite_json(const FirstNonfinite& first) {
  Json json = {{"step", first.step}, {"layer", first.layer}};
  if (first.param.empty()) {
    json["site"] = first.site;
  } else {
    json["param"] = first.param;
  }
  json["kind"] = first.in_gradient ? "gradient" : "value";
  return json;
}

// What the bits depend on, beside the config.
void add_environment(Json& json, const TrainConfig& config) {
  const BlasInfo blas = blas_info();
  json.update({{"peak_rss_mb", peak_rss_bytes() / 0x1p20},
               {"threads", thread_count()},
               {"precision", name_of(config.precision)},
               {"gemm", name_of(gemm_provider(config))},
               {"blas", {{"flavour", blas.flavour}, {"version", blas.version}, {"kernel", blas.kernel}}},
               {"cpu", cpu_name()},
               {"isa", isa_name()},
               {"compiler", compiler_name()},
               {"libc", libc_name()},
               {"version", NORMSCOPE_VERSION},
               {"commit", commit_name()}});
}

}  // namespace

void write_summary(const RunFolder& folder, const RunConfig& config, const RunSummary& s) {
  Json json = {{"status", name_of(s.status)},
               {"steps", s.steps},
               {"params", s.params},
               {"vocab", s.vocab},
               {"final_train_loss", number_or_null(s.final_train_loss)},
               {"final_val_loss", number_or_null(s.final_val_loss)},
               {"best_val_loss", number_or_null(s.best_val_loss)},
               {"best_step", s.best_val_loss ? Json(s.best_step) : Json(nullptr)},
               {"grad_first_last", number_or_null(s.grad_first_last)},
               {"growth", number_or_null(s.growth)},
               {"branch_share", number_or_null(s.branch_share)},
               {"unigram", number_or_null(s.unigram)},
               {"skipped", s.skipped},
               {"seconds", s.seconds},
               {"tokens_per_s", s.tokens_per_s}};
  add_environment(json, config.train);
  json["trajectory_hash"] = hex(s.trajectory_hash);
  if (s.first_nonfinite) {
    json["first_nonfinite"] = nonfinite_json(*s.first_nonfinite);
    json["story"] = s.story;
  }
  write_atomically(folder.file_to_write(summary_file), json.dump(2), "\n");
}

void write_probe_summary(const RunFolder& folder, const RunConfig& config, const ProbeResult& result) {
  Json json = {{"status", "probe"},
               {"steps", 0},
               {"params", result.params},
               {"vocab", result.vocab},
               {"final_train_loss", number_or_null(result.loss)},
               {"final_val_loss", nullptr},
               {"best_val_loss", nullptr},
               {"grad_first_last", number_or_null(result.grad_first_last)},
               {"growth", number_or_null(result.growth)}};
  add_environment(json, config.train);
  if (result.first_nonfinite) json["first_nonfinite"] = nonfinite_json(*result.first_nonfinite);
  write_atomically(folder.file_to_write(summary_file), json.dump(2), "\n");
}

double reopen_summary(const RunFolder& folder, bool resumed) {
  if (!folder.has(summary_file)) return 0;
  Json json = Json::parse(read_file(folder.file(summary_file)), nullptr, false);
  if (!resumed || !json.is_object()) {
    std::filesystem::remove(folder.file(summary_file));
    return 0;
  }
  if (Json& status = json["status"]; status != name_of(RunStatus::interrupted)) {
    status = name_of(RunStatus::interrupted);
    json.erase("first_nonfinite");
    json.erase("story");
    write_atomically(folder.file_to_write(summary_file), json.dump(2), "\n");
  }
  return json.contains("seconds") && json["seconds"].is_number() ? json["seconds"].get<double>() : 0;
}

}  // namespace normscope
