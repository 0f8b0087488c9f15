// The logs of a run's folder: metrics.csv, layers.csv, params.csv, heads.csv. Each has a table of its columns
// and of the members that these show.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "io/csv.h"
#include "run/folder.h"
#include "telemetry/site_statistics.h"

namespace normscope {

struct MetricsRow {
  Index step, tokens;  // tokens: seen by then
  float train_loss;
  std::optional<double> val_loss;
  double lr;
  float grad_norm;  // before clipping
  double clip_factor, step_ms, tokens_per_s;
  std::optional<double> noise_scale;
};

struct ParameterRow {
  Index layer;
  std::string_view param;  // its name, of a layout that outlives the row
  Index numel;
  double rms, grad_norm;
  std::optional<double> grad_norm_batch;
  double grad_rms;
  std::optional<double> update_rms, update_ratio;
};

template <class Member>
struct Column {
  const char* name;
  Member member;
};
template <class Member>
Column(const char*, Member) -> Column<Member>;

inline constexpr std::tuple metrics_columns{
    Column{"step", &MetricsRow::step},
    Column{"tokens", &MetricsRow::tokens},
    Column{"train_loss", &MetricsRow::train_loss},
    Column{"val_loss", &MetricsRow::val_loss},
    Column{"lr", &MetricsRow::lr},
    Column{"grad_norm", &MetricsRow::grad_norm},
    Column{"clip_factor", &MetricsRow::clip_factor},
    Column{"step_ms", &MetricsRow::step_ms},
    Column{"tokens_per_s", &MetricsRow::tokens_per_s},
    Column{"noise_scale", &MetricsRow::noise_scale},
};
// After the step, the layer and the site.
inline constexpr std::tuple site_columns{
    Column{"mean", &SiteRow::mean},           Column{"rms", &SiteRow::rms},
    Column{"abs_max", &SiteRow::abs_max},     Column{"nonfinite", &SiteRow::nonfinite},
    Column{"grad_rms", &SiteRow::grad_rms},   Column{"grad_abs_max", &SiteRow::grad_abs_max},
    Column{"grad_norm", &SiteRow::grad_norm}, Column{"grad_nonfinite", &SiteRow::grad_nonfinite},
    Column{"kurtosis", &SiteRow::kurtosis},   Column{"dead", &SiteRow::dead},
    Column{"cos_in", &SiteRow::cos_in},       Column{"branch_share", &SiteRow::branch_share},
};
// After the step.
inline constexpr std::tuple parameter_columns{
    Column{"layer", &ParameterRow::layer},
    Column{"param", &ParameterRow::param},
    Column{"numel", &ParameterRow::numel},
    Column{"rms", &ParameterRow::rms},
    Column{"grad_norm", &ParameterRow::grad_norm},
    Column{"grad_norm_batch", &ParameterRow::grad_norm_batch},
    Column{"grad_rms", &ParameterRow::grad_rms},
    Column{"update_rms", &ParameterRow::update_rms},
    Column{"update_ratio", &ParameterRow::update_ratio},
};
// After the step.
inline constexpr std::tuple head_columns{
    Column{"layer", &HeadRow::layer},
    Column{"head", &HeadRow::head},
    Column{"max_logit", &HeadRow::max_logit},
    Column{"entropy", &HeadRow::entropy},
    Column{"first_share", &HeadRow::first_share},
    Column{"q_rms", &HeadRow::q_rms},
    Column{"k_rms", &HeadRow::k_rms},
    Column{"v_rms", &HeadRow::v_rms},
};

// Calls `use(value)` with each member of a row that the columns name.
template <class Row, class... Members, class Use>
void for_each_cell(Row&& row, const std::tuple<Column<Members>...>& columns, Use&& use) {
  std::apply([&](const auto&... column) { (use(row.*column.member), ...); }, columns);
}

// layers.csv, params.csv and heads.csv. `last_step`: goes on after the rows of that step; without it the logs
// begin anew.
struct LayerLogs {
  explicit LayerLogs(const RunFolder& folder, std::optional<Index> last_step = std::nullopt);

  void add_sites(Index step, const std::vector<SiteRow>& sites);  // not flushed
  void write(Index step, const std::vector<SiteRow>& sites, const std::vector<ParameterRow>& parameters,
             const std::vector<HeadRow>& head_rows);

  CsvWriter layers, params, heads;
};

CsvWriter open_metrics(const RunFolder& folder, std::optional<Index> last_step);  // as LayerLogs
void write_metrics(CsvWriter& csv, const MetricsRow& row);

}  // namespace normscope
