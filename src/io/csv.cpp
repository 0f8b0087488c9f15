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
  const std::string log = read_file(path_, "csv");
  Index line = 1, kept = 0, newest = 0, rows = 0, most_rows = 0;  // `rows` of the step `kept`
  std::string first, damage;  // the key of that step's first row; the first line that is no row
  const auto stop = [&](const auto&... what) {
    fail("csv", path_, ": ", what..., "; restore the log, or remove it to go on without its rows");
  };
  const auto end_step = [&](Index next) {
    if (most_rows == 0) most_rows = rows;
    if (rows != most_rows) stop("line ", line, ": step ", kept, " ends after ", rows, " rows; expected ", most_rows);
    for (Index step = kept + 1; is_due && step < next; ++step) {
      if (is_due(step)) stop("line ", line, ": expected a row of step ", step, " after step ", kept);
    }
  };
  size_ = log.find('\n') + 1;
  const Index cells = std::count(log.begin(), log.begin() + size_, ',');
  for (std::size_t begin = size_, end; (end = log.find('\n', begin)) != log.npos; begin = end + 1) {
    ++line;
    const std::string row = log.substr(begin, end - begin);
    const auto step = parse_number<Index>(row.substr(0, row.find(',')));
    if (!step || *step < 1 || std::ranges::count(row, ',') != cells || row.find('\0') != row.npos) {
      if (damage.empty()) damage = text("line ", line, ": got ", quote(row), "; expected a row as the header has it");
    } else if (*step > last_step) {
      newest = std::max(newest, *step);
    } else {
      if (!damage.empty()) stop(damage);
      if (*step < newest) stop("line ", line, ": step ", *step, " follows step ", newest);
      if (*step > kept) {
        end_step(*step);
        first = cells_of(row, keys);
        kept = newest = *step;
        rows = 0;
      } else if (cells_of(row, keys) == first) {
        stop("line ", line, ": ", first, " stands there for the second time");
      }
      ++rows;
      size_ = end + 1;
    }
  }
  ++line;
  end_step(last_step + 1);
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
