#include "io/csv.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "core/text.h"
#include "io/utf8.h"

namespace normscope {
namespace {

// All of `cell` as a step; nothing where it is none.
std::optional<Index> step_of(std::string_view cell) {
  Index step = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), step);
  if (error != std::errc() || end != cell.data() + cell.size()) return std::nullopt;
  return step;
}

using RowsByStep = std::map<Index, std::string>;

RowsByStep rows_by_step(std::string_view lines) {
  RowsByStep rows;
  for (std::size_t size; (size = lines.find('\n') + 1) > 0; lines.remove_prefix(size)) {  // npos + 1 is 0
    rows[step_of(lines.substr(0, lines.find(','))).value_or(0)] += lines.substr(0, size);
  }
  return rows;
}

}  // namespace

void CsvRows::add(std::string_view cell) {
  if (cells_++ > 0) text_ += ',';
  text_ += cell;
}

void CsvRows::cell(std::string_view value) {
  if (value.find_first_of(",\"\r\n") == value.npos) return add(value);
  add("\"");
  for (const char c : value) text_.append(c == '"' ? 2 : 1, c);
  text_ += '"';
}

void CsvRows::end_row() {
  require(cells_ == columns_.size(), "csv", "a row of ", cells_, " cells; expected ", columns_.size());
  text_ += '\n';
  cells_ = 0;
}

std::string CsvRows::header() const {
  CsvRows names(columns_);
  for (const std::string& column : columns_) names.cell(column);
  names.end_row();
  return names.text_;
}

CsvWriter::CsvWriter(const std::string& path, const std::vector<std::string>& columns, Open how)
    : CsvRows(columns), path_(path) {
  bool found = false;
  if (how == Open::append && std::filesystem::exists(path)) {
    CsvReader old(path);
    found = !old.columns().empty();
    if (found && old.columns() != columns) {
      old.stop("the header is `", escape_controls(join(old.columns(), ",")), "`; expected `",
               join(columns, ","), "`");
    }
    while (old.next()) continue;
    size_ = old.end();
  }
  if (!found) {
    write_atomically(path, header());
    size_ = std::ssize(header());
  }
  open();
  if (found) cut(size_);  // takes off a torn row
}

CsvWriter::~CsvWriter() {
  if (!file_.is_open()) return;  // moved from
  try {
    text_.resize(text_.rfind('\n') + 1);  // not half a row (npos + 1 is 0)
    cells_ = 0;
    flush();
  } catch (const Error&) {
  }
}

void CsvWriter::open() {
  file_ = FileDescriptor(::open(path_.c_str(), O_RDWR | O_APPEND | O_CLOEXEC));
  require(file_.is_open(), "csv", escape_controls(path_), ": cannot be opened for writing: ", errno_text());
}

Index CsvWriter::size_until(Index step) const {
  CsvReader rows(path_);
  Index size = rows.end();
  while (rows.next()) {
    const std::optional<Index> row_step = step_of(rows.first());
    if (!row_step) {
      rows.stop("`", escape_controls(rows.first()), "` is not a step; the file was changed or is damaged");
    }
    if (*row_step > step) break;
    size = rows.end();
  }
  return size;
}

void CsvWriter::truncate_after(Index step) {
  flush();
  cut(size_until(step));
}

void CsvWriter::merge_after(Index step) {
  std::string whole = read_file(path_, {.where = "csv"});
  const std::size_t kept = static_cast<std::size_t>(size_until(step));
  RowsByStep rows = rows_by_step(text_), old = rows_by_step(std::string_view(whole).substr(kept));
  rows.merge(old);  // takes the steps that are not there
  whole.resize(kept);
  for (const auto& [of_step, lines] : rows) whole += lines;
  write_atomically(path_, whole);
  size_ = std::ssize(whole);
  text_.clear();
  open();
}

void CsvWriter::cut(Index size) {
  if (::ftruncate(file_.get(), size) != 0)
    fail("csv", escape_controls(path_), ": cannot be shortened: ", errno_text());
  size_ = size;
}

void CsvWriter::flush() {
  require(cells_ == 0, "csv", escape_controls(path_), ": flushed within a row");
  if (!write_all(file_.get(), text_)) {
    const std::string reason = errno_text();
    text_.clear();
    cut(size_);  // a full disk took a part of it: leave whole rows
    fail("csv", escape_controls(path_), ": cannot be written: ", reason);
  }
  size_ += std::ssize(text_);
  text_.clear();
}

void CsvWriter::sync() {
  flush();
  if (::fsync(file_.get()) != 0 && errno != EINVAL) {
    fail("csv", escape_controls(path_), ": cannot be synced: ", errno_text());
  }
}

CsvReader::CsvReader(const std::string& path)
    : shown_path_(escape_controls(path)), file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  require(file_.is_open(), "csv", shown_path_, ": cannot be opened: ", errno_text());
  if (next()) columns_ = fields_;
}

void CsvReader::skip_to_last(Index bytes) {
  const Index start = static_cast<Index>(::lseek(file_.get(), 0, SEEK_END)) - bytes;
  if (start <= end_) return;
  piece_.clear();
  at_ = 0;
  read_ = end_ = start - 1;
  next();  // the end of a row, or the newline before one
}

bool CsvReader::next() {
  constexpr std::size_t piece_size = std::size_t{1} << 16;
  std::size_t newline = piece_.find('\n', at_);
  while (newline == piece_.npos) {
    piece_.erase(0, std::exchange(at_, 0));
    const std::size_t have = piece_.size();
    piece_.resize(have + piece_size);
    const Index got = read_at(file_.get(), piece_.data() + have, piece_size, read_);
    if (got < 0) fail("csv", shown_path_, ": cannot be read: ", errno_text());
    piece_.resize(have + static_cast<std::size_t>(got));
    if (got == 0) return false;
    read_ += got;
    newline = piece_.find('\n', have);
  }
  std::string_view row = std::string_view(piece_).substr(at_, newline - at_);
  end_ += std::ssize(row) + 1;
  at_ = newline + 1;
  ++line_;
  if (row.ends_with('\r')) row.remove_suffix(1);
  fields_.clear();
  for (;;) {
    const std::size_t comma = std::min(row.find(','), row.size());
    fields_.emplace_back(row.substr(0, comma));
    if (comma == row.size()) return true;
    row.remove_prefix(comma + 1);
  }
}

std::size_t CsvReader::column(std::string_view name) const {
  const auto found = std::find(columns_.begin(), columns_.end(), name);
  require(found != columns_.end(), "csv", shown_path_, ": no column ", name);
  return static_cast<std::size_t>(found - columns_.begin());
}

const std::string& CsvReader::field(std::size_t column) const {
  if (fields_.size() != columns_.size()) stop(fields_.size(), " fields; expected ", columns_.size());
  return fields_[column];
}

std::optional<double> CsvReader::number(std::size_t column) const {
  const std::string& cell = field(column);
  if (cell.empty()) return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (error != std::errc() || end != cell.data() + cell.size()) {
    stop(escape_controls(columns_[column]), ": `", escape_controls(cell), "` is not a number");
  }
  return value;
}

}  // namespace normscope
