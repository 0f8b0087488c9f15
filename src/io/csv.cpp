#include "io/csv.h"

#include <fcntl.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "core/text.h"
#include "io/json.h"

namespace normscope {
namespace fs = std::filesystem;
namespace {

// Creates a missing log with its header. Error: the log has another header. Returns the path.
const std::string& with_header(const std::string& path, const std::string& columns) {
  if (!fs::exists(path)) write_atomically(path, columns + "\n");
  std::string header;
  std::ifstream log(path);
  std::getline(log, header);
  require(!header.ends_with('\r'), "csv", path, ": its lines end in CR LF; expected LF alone: tr -d '\\r' removes CR");
  require(header == columns, "csv", path, ": the header is ", quote(header), "; expected ", columns,
          "; another version wrote the log: go on with that one, or start again with --overwrite");
  return path;
}

// The first `count` cells of a row that has more.
std::string cells_of(const std::string& row, Index count) {
  std::size_t end = 0;
  for (Index cell = 0; cell < count; ++cell) end = row.find(',', end) + 1;
  return row.substr(0, end - 1);
}

}  // namespace

CsvWriter::CsvWriter(const std::string& path, const std::string& columns)
    : path_(path), file_(with_header(path, columns), O_WRONLY | O_APPEND) {
  require(file_.is_open(), "csv", path, ": cannot be opened for writing: ", errno_text());
  size_ = fs::file_size(path);
}

void CsvWriter::check(Index last_step, Index keys, const std::function<bool(Index)>& is_due) {
  std::vector<std::string> lines = split(read_file(path_, "csv"), '\n');
  lines.pop_back();  // no newline ends it
  const auto cells = std::ranges::count(lines[0], ',');
  const auto step_of = [&](const std::string& row) {  // nothing, if it is no row
    const auto step = parse_number<Index>(row.substr(0, row.find(',')));
    const bool is_row = std::ranges::count(row, ',') == cells && row.find('\0') == row.npos;
    return is_row && step >= 1 ? step : std::nullopt;
  };
  while (lines.size() > 1 && step_of(lines.back()).value_or(last_step + 1) > last_step) lines.pop_back();
  size_ = 0;
  for (const std::string& line : lines) size_ += line.size() + 1;

  Index kept = 0, rows = 0, most_rows = 0;  // `rows` of the step `kept`
  std::string first;                        // the key of that step's first row
  for (std::size_t i = 1; i <= lines.size(); ++i) {
    const auto stop = [&](const auto&... what) {
      fail("csv", path_, ": line ", i + 1, ": ", what..., "; restore the log, or remove it to go on without its rows");
    };
    const bool is_row = i < lines.size();  // else the end of the log
    const std::optional<Index> step = is_row ? step_of(lines[i]) : last_step + 1;
    if (!step) stop("got ", quote(lines[i]), "; expected a row as the header has it");
    if (*step < kept) stop("step ", *step, " follows step ", kept);
    const std::string key = is_row ? cells_of(lines[i], keys) : "";
    if (*step == kept && key == first) stop(key, " stands there for the second time");
    if (*step > kept) {
      if (most_rows == 0) most_rows = rows;
      if (rows != most_rows) stop("step ", kept, " ends after ", rows, " rows; expected ", most_rows);
      for (Index missing = kept + 1; missing < *step; ++missing) {
        if (is_due(missing)) stop("expected a row of step ", missing, " after step ", kept);
      }
      first = key;
      kept = *step;
      rows = 0;
    }
    ++rows;
  }
}

void CsvWriter::flush() {
  require(fs::exists(path_), "csv", path_,
          ": was removed while the run writes it; --resume goes on without the rows before");
  if (!file_.write(rows_)) {
    const std::string reason = errno_text();
    std::error_code ignored;
    fs::resize_file(path_, size_, ignored);  // a full disk took a part of them: leave whole rows
    fail("csv", path_, ": cannot be written: ", reason);
  }
  size_ += rows_.size();
  rows_.clear();
}

void CsvWriter::sync() {
  flush();
  if (!file_.sync()) fail("csv", path_, ": cannot be synced: ", errno_text());
}

}  // namespace normscope
