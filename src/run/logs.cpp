#include "run/logs.h"

namespace normscope {
namespace {

template <class... Members>
CsvWriter open_log(const std::string& path, std::vector<std::string> names,
                   const std::tuple<Column<Members>...>& columns, std::optional<Index> last_step) {
  std::apply([&](const auto&... column) { (names.emplace_back(column.name), ...); }, columns);
  return CsvWriter(path, names, last_step);
}

template <class Row, class Columns>
void add_cells(CsvWriter& csv, const Row& row, const Columns& columns) {
  for_each_cell(row, columns, [&](const auto& value) { csv.cell(value); });
  csv.end_row();
}

template <class Row, class Columns>
void write_rows(CsvWriter& csv, Index step, const std::vector<Row>& rows, const Columns& columns) {
  for (const Row& row : rows) {
    csv.cell(step);
    add_cells(csv, row, columns);
  }
  csv.flush();
}

}  // namespace

void Logs::sync() {
  metrics.sync();
  if (layers) layers->sync();
  if (params) params->sync();
  if (heads) heads->sync();
}

CsvWriter open_metrics(const RunFolder& folder, std::optional<Index> last_step) {
  return open_log(folder.file(metrics_file), {}, metrics_columns, last_step);
}

CsvWriter open_layers(const RunFolder& folder, std::optional<Index> last_step) {
  return open_log(folder.file(layers_file), {"step", "layer", "site"}, site_columns, last_step);
}

CsvWriter open_params(const RunFolder& folder, std::optional<Index> last_step) {
  return open_log(folder.file(params_file), {"step"}, parameter_columns, last_step);
}

CsvWriter open_heads(const RunFolder& folder, std::optional<Index> last_step) {
  return open_log(folder.file(heads_file), {"step"}, head_columns, last_step);
}

void write_metrics(CsvWriter& csv, const MetricsRow& row) {
  add_cells(csv, row, metrics_columns);
  csv.flush();
}

void add_layers(CsvWriter& csv, Index step, const std::vector<SiteRow>& rows) {
  for (const SiteRow& row : rows) {
    csv.cell(step);
    csv.cell(row.place.layer);
    csv.cell(std::string_view(name_of(row.place.site)));
    add_cells(csv, row, site_columns);
  }
}

void write_layers(CsvWriter& csv, Index step, const std::vector<SiteRow>& rows) {
  add_layers(csv, step, rows);
  csv.flush();
}

void write_params(CsvWriter& csv, Index step, const std::vector<ParameterRow>& rows) {
  write_rows(csv, step, rows, parameter_columns);
}

void write_heads(CsvWriter& csv, Index step, const std::vector<HeadRow>& rows) {
  write_rows(csv, step, rows, head_columns);
}

}  // namespace normscope
