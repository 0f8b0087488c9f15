#include "run/logs.h"

#include "core/parallel.h"

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

LayerLogs::LayerLogs(const RunFolder& folder, std::optional<Index> last_step)
    : layers(open_log(folder.file(layers_file), {"step", "layer", "site"}, site_columns, last_step)),
      params(open_log(folder.file(params_file), {"step"}, parameter_columns, last_step)),
      heads(open_log(folder.file(heads_file), {"step"}, head_columns, last_step)) {}

void LayerLogs::add_sites(Index step, const std::vector<SiteRow>& sites) {
  for (const SiteRow& row : sites) {
    layers.cell(step);
    layers.cell(row.place.layer);
    layers.cell(std::string_view(name_of(row.place.site)));
    add_cells(layers, row, site_columns);
  }
}

void LayerLogs::write(Index step, const std::vector<SiteRow>& sites,
                      const std::vector<ParameterRow>& parameters, const std::vector<HeadRow>& head_rows) {
  parallel_each(3, [&](Index log) {  // in one thread, the text would be a fifth of what logging costs two
    if (log == 0) add_sites(step, sites), layers.flush();
    if (log == 1) write_rows(params, step, parameters, parameter_columns);
    if (log == 2) write_rows(heads, step, head_rows, head_columns);
  });
}

CsvWriter open_metrics(const RunFolder& folder, std::optional<Index> last_step) {
  return open_log(folder.file(metrics_file), {}, metrics_columns, last_step);
}

void write_metrics(CsvWriter& csv, const MetricsRow& row) {
  add_cells(csv, row, metrics_columns);
  csv.flush();
}

}  // namespace normscope
