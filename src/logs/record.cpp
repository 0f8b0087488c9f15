#include "logs/record.h"

#include <commit.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "core/machine.h"
#include "core/parallel.h"
#include "core/text.h"
#include "kernels/simd.h"

namespace normscope {
namespace {

// null where there is no number; numbers that are not finite are printed as null too.
template <class Number>
Json json_of(const std::optional<Number>& number) {
  return number ? Json(*number) : nullptr;
}
Json json_of(Index number) { return number; }
Json json_of(std::uint64_t hash) { return hex(hash); }

Json json_of(const FirstNonfinite& first) {
  const bool is_site = first.param.empty();
  return {{"step", first.step},
          {"layer", first.layer},
          {is_site ? "site" : "param", is_site ? first.site : first.param},
          {"kind", first.in_gradient ? "gradient" : "value"}};
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != line.npos) return line.substr(colon + 2);
  }
  return "unknown";
}

// "glibc 2.36": the digits of n-gram losses may depend on it
std::string libc_name() {
  char name[100] = "unknown";  // with another C library it stays that
  confstr(_CS_GNU_LIBC_VERSION, name, sizeof name);
  return name;
}

}  // namespace

std::string digits_text(const TrainConfig& config) {
  if (config.gemm == GemmProvider::openblas) return "of OpenBLAS's kernel for this processor";
  const bool in_bf16 = config.precision == Precision::bf16;
  if (in_bf16 && instruction_set().pairs != nullptr)
    return text("of bf16 products by ", instruction_set().name);
  if (!simd_kernels().has_fma) return "of a processor without fused multiply-add";
  return in_bf16 ? "of operands rounded to bf16" : "portable";
}

std::string blas_text() {
  const BlasInfo blas = blas_info();
  return text("OpenBLAS ", blas.version, " (", blas.flavour, ", ", blas.kernel, ")");
}

std::string version_text() {
  return text("normscope ", NORMSCOPE_VERSION, " (commit ", NORMSCOPE_COMMIT, "), ", NORMSCOPE_COMPILER, ", ",
              instruction_set().name, ", ", blas_text());
}

std::string text_of(const FirstNonfinite& first) {
  const std::string of_gradient = first.in_gradient ? "the gradient of " : "";
  if (!first.param.empty()) return of_gradient + first.param;
  if (first.layer == 0) return of_gradient + "the embedding";
  if (first.site == name_of(Site::final)) return of_gradient + "the final activation";
  if (first.site == name_of(Site::logits) || first.site == loss_site)
    return of_gradient + "the " + first.site;
  return text(of_gradient, "block ", first.layer, ' ', first.site);
}

double grad_first_last(const std::vector<ParameterRow>& rows, Index n_layer) {
  double first = 0, last = 0;
  for (const ParameterRow& row : rows) {
    const double square = row.grad_norm * row.grad_norm;
    if (row.layer == 1) first += square;
    if (row.layer == n_layer) last += square;
  }
  return std::sqrt(first / last);
}

double growth(const std::vector<SiteRow>& rows) {
  double first = 0, last = 0;
  for (const SiteRow& row : rows) {
    if (row.id.site != Site::stream) continue;
    if (row.id.layer == 1) first = row.rms;
    last = row.rms;
  }
  return last / first;
}

std::optional<double> branch_share(const std::vector<SiteRow>& rows) {
  double sum = 0;
  int branches = 0;
  for (const SiteRow& row : rows) {
    if (!row.branch_share) continue;
    sum += *row.branch_share;
    ++branches;
  }
  if (branches == 0 || !std::isfinite(sum)) return std::nullopt;
  return sum / branches;
}

void write_record(const std::string& path, const RunRecord& run, const TrainConfig& config) {
  Json json = {{"status", run.status},
               {"steps", run.steps},
               {"params", run.params},
               {"vocab", run.vocab},
               {"corpus_hash", run.corpus_hash}};
  for_each_figure(run, [&](const char* name, const auto& figure) { json[name] = json_of(figure); });
  const BlasInfo blas = blas_info();
  json.update({{"peak_rss_mb", peak_rss_bytes() / 0x1p20},
               {"threads", thread_count()},
               {"precision", name_of(config.precision)},
               {"gemm", name_of(config.gemm)},
               {"blas", {{"flavour", blas.flavour}, {"version", blas.version}, {"kernel", blas.kernel}}},
               {"cpu", cpu_name()},
               {"isa", isa_name(config.gemm_mode())},
               {"compiler", NORMSCOPE_COMPILER},
               {"digits", digits_text(config)},
               {"libc", libc_name()},
               {"version", NORMSCOPE_VERSION},
               {"commit", NORMSCOPE_COMMIT}});
  if (run.status == status_probe) {
    for (const char* of_training : {"best_step", "skipped", "trajectory_hash"}) json.erase(of_training);
  } else {
    for (const NgramLoss& loss : std::span(run.ngrams).subspan(1))
      json[loss.name] = loss.nats;  // but for uniform
    json.update({{"seconds", json_of(run.seconds)},
                 {"tokens_per_s", json_of(run.tokens_per_s)},
                 {"ranks", run.ranks}});
  }
  json.update(run.history);
  if (run.first_nonfinite) json["first_nonfinite"] = json_of(*run.first_nonfinite);
  write_atomically(path, json_text(json));
}

Json record_in(const std::string& path, const char* key) {
  if (!std::filesystem::exists(path)) return nullptr;
  const Json json = Json::parse(read_file(path), nullptr, /*allow_exceptions=*/false);
  return json.is_object() && json.contains(key) ? json[key] : Json();
}

std::optional<FirstNonfinite> first_nonfinite_in(const std::string& path) {
  const Json first = record_in(path, "first_nonfinite");
  try {
    return FirstNonfinite{.step = first.at("step"),
                          .layer = first.at("layer"),
                          .site = first.value("site", ""),
                          .param = first.value("param", ""),
                          .in_gradient = first.at("kind") == "gradient"};
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

}  // namespace normscope
