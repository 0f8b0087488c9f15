#include "run/record.h"

#include <algorithm>
#include <cmath>

#include "io/json.h"

namespace normscope {
namespace {

// null where there is no number; numbers that are not finite are printed as null too.
template <class Number>
Json or_null(const std::optional<Number>& number) {
  return number ? Json(*number) : nullptr;
}

Json json_of(const FirstNonfinite& first) {
  const bool is_site = first.param.empty();
  return {{"step", first.step},
          {"layer", first.layer},
          {is_site ? "site" : "param", is_site ? first.site : first.param},
          {"kind", first.in_gradient ? "gradient" : "value"}};
}

}  // namespace

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
  // The first row is stream 0; the third from the end is stream L (final and logits follow).
  return rows[rows.size() - 3].rms / rows.front().rms;
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

bool branches_too_small(const ModelConfig& config, double share) {
  const bool by_design = std::ranges::any_of(sublayer_rows(config), [](const Placement* row) {
    return row->norm_branch || row->learned_scale || !row->init_gain.is_one();
  });
  const bool scaled =
      config.branch_scale_learned != LearnedScale::none || config.branch_scale.of(config.n_layer) != 1;
  return share < 0.05 && !scaled && config.norm != NormKind::none && !by_design;
}

void write_record(const std::string& path, const RunRecord& run) {
  Json json = {
      {"status", run.status},
      {"steps", run.steps},
      {"params", run.params},
      {"vocab", run.vocab},
      {"corpus_hash", run.corpus_hash},
      {"final_train_loss", or_null(run.final_train_loss)},
      {"final_val_loss", or_null(run.final_val_loss)},
      {"best_val_loss", or_null(run.best_val_loss)},
      {"grad_first_last", or_null(run.grad_first_last)},
      {"growth", or_null(run.growth)},
      {"peak_rss_mb", or_null(run.peak_rss_mb)},
      {"threads", run.threads},
      {"precision", run.precision},
      {"gemm", run.gemm},
      {"blas", {{"flavour", run.blas_flavour}, {"version", run.blas_version}, {"kernel", run.blas_kernel}}},
      {"cpu", run.cpu},
      {"isa", run.isa},
      {"compiler", run.compiler},
      {"libc", run.libc},
      {"version", run.version},
      {"commit", run.commit}};
  if (run.status != status_probe) {
    json.update({{"best_step", or_null(run.best_step)},
                 {"branch_share", or_null(run.branch_share)},
                 {"unigram", or_null(run.unigram)},
                 {"bigram", or_null(run.bigram)},
                 {"trigram", or_null(run.trigram)},
                 {"4-gram", or_null(run.four_gram)},
                 {"skipped", run.skipped},
                 {"seconds", or_null(run.seconds)},
                 {"tokens_per_s", or_null(run.tokens_per_s)},
                 {"ranks", run.ranks},
                 {"trajectory_hash", run.trajectory_hash}});
  }
  if (run.first_nonfinite) json["first_nonfinite"] = json_of(*run.first_nonfinite);
  write_atomically(path, json_text(json));
}

std::optional<double> seconds_in(const std::string& path) {
  const Json json = Json::parse(read_file(path), nullptr, /*allow_exceptions=*/false);
  const bool has = json.is_object() && json.contains("seconds") && json["seconds"].is_number();
  return has ? std::optional(json["seconds"].get<double>()) : std::nullopt;
}

}  // namespace normscope
