// The logs of a run's folder: metrics.csv, layers.csv, params.csv, heads.csv.
#pragma once

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
};

struct ParameterRow {
  Index layer;
  std::string_view param;  // its name, of a layout that outlives the row
  Index numel;
  double rms, grad_norm;
  std::optional<double> grad_norm_batch;
  double grad_rms;
  std::optional<double> update_rms;
};

// layers.csv, params.csv and heads.csv. `last_step`: goes on after the rows of that step; without it the logs
// begin anew.
struct LayerLogs {
  explicit LayerLogs(const RunFolder& folder, std::optional<Index> last_step = std::nullopt);

  void write(Index step, const std::vector<SiteRow>& sites, const std::vector<ParameterRow>& parameters,
             const std::vector<HeadRow>& head_rows);

  CsvWriter layers, params, heads;
};

CsvWriter open_metrics(const RunFolder& folder, std::optional<Index> last_step);  // as LayerLogs
void write_metrics(CsvWriter& csv, const MetricsRow& row);

}  // namespace normscope
