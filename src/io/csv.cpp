#include "io/csv.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "core/text.h"
#include "io/utf8.h"

namespace normscope {
namespace {

// All of `cell` as a number; false where it is none.
template <class Number>
bool parse(std::string_view cell, Number& number) {
  const char* end = cell.data() + cell.size();
  const auto result = std::from_chars(cell.data(), end, number);
  return result.ec == std::errc() && result.ptr == end;
}

// Whole rows, those of a step together.
std::map<Index, std::string> rows_by_step(std::string_view rows) {
  std::map<Index, std::string> steps;
  for (std::size_t size; (size = rows.find('\n') + 1) > 0; rows.remove_prefix(size)) {  // npos + 1 is 0
    Index step = 0;
    parse(rows.substr(0, rows.find(',')), step);
    steps[step] += rows.substr(0, size);
  }
  return steps;
}

// Gives the rows of a log with the first of these columns alone empty cells in the others.
void add_columns(const std::string& path, const std::vector<std::string>& columns) {
  CsvReader rows(path);
  const std::vector<std::string>& had = rows.columns();
  if (had.empty() || had.size() >= columns.size() || !std::equal(had.begin(), had.end(), columns.begin()))
    return;
  CsvRows whole(columns);
  while (rows.next()) {
    for (std::size_t i = 0; i < columns.size(); ++i)
      whole.cell(i < had.size() ? std::string_view(rows.cell(columns[i])) : std::string_view());
    whole.end_row();
  }
  write_atomically(path, whole.header(), whole.text());
}

// Bytes of a log's header and its rows of steps up to `step`; 0: it has no header.
Index size_until(Index step, const std::string& path, const std::vector<std::string>& columns) {
  CsvReader rows(path);
  if (rows.columns().empty()) return 0;
  if (rows.columns() != columns)
    rows.stop("the header is `", escape_controls(join(rows.columns(), ",")), "`; expected `",
              join(columns, ","), "`");
  Index size = rows.end();
  while (rows.next() && rows.count("step") <= step) size = rows.end();
  return size;
}

}  // namespace

void CsvRows::append(std::string_view cell) {
  if (cells_++ > 0) text_ += ',';
  text_ += cell;
}

void CsvRows::cell(std::string_view value) {
  const auto is_special = [](char c) { return c == ',' || c == '"' || c == '\r' || c == '\n'; };
  if (std::ranges::none_of(value, is_special)) return append(value);
  append("\"");
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

CsvReader::CsvReader(const std::string& path)
    : shown_path_(escape_controls(path)), file_(path, std::ios::binary) {
  require(file_.is_open(), "csv", shown_path_, ": cannot be opened: ", errno_text());
  if (next()) columns_ = cells_;
}

void CsvReader::skip_to_last(Index bytes) {
  file_.seekg(0, std::ios::end);
  const Index start = static_cast<Index>(file_.tellg()) - bytes;
  file_.seekg(std::max(start - 1, end_));
  std::string rest;  // of the row that begins before, or the newline that ends it
  if (start > end_) std::getline(file_, rest);
}

bool CsvReader::next() {
  std::string row;
  std::getline(file_, row);
  require(!file_.bad(), "csv", shown_path_, ": cannot be read: ", errno_text());
  if (!file_.good()) return false;  // the end came before a newline
  end_ += std::ssize(row) + 1;
  ++line_;
  cells_ = split(row);
  if (!columns_.empty() && cells_.size() != columns_.size())
    stop(cells_.size(), " cells; expected ", columns_.size());
  return true;
}

const std::string& CsvReader::cell(std::string_view column) const {
  const auto found = std::ranges::find(columns_, column);
  if (found == columns_.end()) stop("no column ", escape_controls(column));
  return cells_[found - columns_.begin()];
}

std::optional<double> CsvReader::number(std::string_view column) const {
  const std::string& written = cell(column);
  if (written.empty()) return std::nullopt;
  double value = 0;
  if (!parse(written, value))
    stop(escape_controls(column), ": `", escape_controls(written), "` is not a number");
  return value;
}

Index CsvReader::count(std::string_view column) const {
  Index value = 0;
  if (!parse(cell(column), value) || value < 0)
    stop(escape_controls(column), ": `", escape_controls(cell(column)),
         "` is not a whole number; the file was changed or is damaged");
  return value;
}

CsvWriter::CsvWriter(const std::string& path, const std::vector<std::string>& columns,
                     std::optional<Index> last_step)
    : CsvRows(columns), path_(path) {
  if (last_step && std::filesystem::exists(path)) {
    add_columns(path, columns);
    size_ = size_until(*last_step, path, columns);
  }
  if (size_ == 0) write_atomically(path, header());
  size_ = std::max(size_, std::ssize(header()));
  open();
  cut(size_);
}

void CsvWriter::open() {
  file_ = FileDescriptor(path_, O_RDWR | O_APPEND);
  require(file_.is_open(), "csv", escape_controls(path_), ": cannot be opened for writing: ", errno_text());
}

void CsvWriter::cut(Index size) {
  if (::ftruncate(file_.get(), size) != 0)
    fail("csv", escape_controls(path_), ": cannot be shortened: ", errno_text());
}

void CsvWriter::merge() {
  const std::string whole = read_file(path_, {.where = "csv"});
  auto steps = rows_by_step(text_), old = rows_by_step(std::string_view(whole).substr(header().size()));
  steps.merge(old);  // takes the steps that are not there
  std::string merged = header();
  for (const auto& [step, rows] : steps) merged += rows;
  write_atomically(path_, merged);
  size_ = std::ssize(merged);
  text_.clear();
  open();
}

void CsvWriter::flush() {
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
  if (::fsync(file_.get()) != 0 && errno != EINVAL)
    fail("csv", escape_controls(path_), ": cannot be synced: ", errno_text());
}

}  // namespace normscope
