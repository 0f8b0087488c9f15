// normscope probe CONFIG: activations and gradients without training.
#include "train/probe.h"

#include <cmath>
#include <filesystem>
#include <iostream>

#include "cli/commands.h"
#include "cli/terminal.h"
#include "config/load.h"
#include "io/utf8.h"
#include "logs/record.h"
#include "model/model.h"

namespace normscope {
namespace fs = std::filesystem;
namespace {

// Loss, grad_first_last and growth: of several seeds mean ± sample standard deviation.
std::string figures_text(const std::vector<RunRecord>& records) {
  std::string line;
  for (const auto figure : {&RunRecord::final_train_loss, &RunRecord::grad_first_last, &RunRecord::growth}) {
    const double count = static_cast<double>(records.size());
    double sum = 0, squares = 0;
    for (const RunRecord& record : records) sum += *(record.*figure);
    for (const RunRecord& record : records) squares += std::pow(*(record.*figure) - sum / count, 2);
    std::string cell = significant_text(sum / count, 5);
    if (count > 1) cell += " ± " + significant_text(std::sqrt(squares / (count - 1)), 2);
    line += aligned_left(cell, 20);
  }
  return line.substr(0, line.find_last_not_of(' ') + 1);
}

// Prints the residual stream after each block; layer 0 is the embedding.
void print_streams(const std::vector<SiteRow>& sites) {
  constexpr int bar_width = 40;
  Columns table;
  std::vector<double> gradients;
  add_row(table, {"layer", "stream rms", "gradient rms"});
  for (const SiteRow& row : sites) {
    if (row.id.site != Site::stream) continue;
    gradients.push_back(row.grad_rms);
    add_row(table,
            {std::to_string(row.id.layer), significant_text(row.rms), significant_text(row.grad_rms)});
  }
  table.push_back(log_bars(gradients, bar_width));
  table.back().insert(table.back().begin(), range_text(gradients) + ", log scale");
  print_table(table);
}

// Removes the seeds of an earlier probe in that folder: averages over it would mix two configs.
void remove_seeds(const fs::path& out) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(out, ignored)) {
    if (!entry.path().filename().string().starts_with("seed-")) continue;
    RunFolder(entry.path().string(), Existing::overwrite);
    fs::remove(entry.path(), ignored);  // unless other files lie in it
  }
}

Exit run(const CommandLine& line) {
  RunConfig config = load_config(line.positionals()[0], line.all_of("set")).config;
  set_up_threads(line, config.train.threads);
  const Corpus corpus = corpus_of(config);
  require_memory(config.model, corpus.vocab.size(), config.train.batch_size);

  const Index seeds = line.number_of<Index>("seeds", 1, 100'000, 1);
  const fs::path out = line.text_of("out").value_or("runs/" + config.name + "-probe");
  const std::optional<std::string> from = line.text_of("from");
  ProbeOptions options;
  options.batches = line.number_of<Index>("batches", 1, 1'000'000, 1);
  if (from) options.weights = newest_weights(*from);
  const Existing existing = line.has("overwrite") ? Existing::overwrite : Existing::refuse;

  const Index first_seed = config.train.seed;
  const auto folder_of = [&](Index seed) { return (out / ("seed-" + std::to_string(seed))).string(); };
  for (Index seed = first_seed; seed < first_seed + seeds; ++seed)  // before the first is computed
    require_usable(folder_of(seed), existing);
  if (existing == Existing::overwrite) remove_seeds(out);
  bool diverged = false;
  std::vector<RunRecord> records;
  std::vector<SiteRow> first_sites;
  for (Index seed = first_seed; seed < first_seed + seeds; ++seed) {
    config.train.seed = seed;
    options.dump = seed == first_seed ? line.text_of("dump").value_or("") : "";
    RunFolder folder(folder_of(seed), existing);
    const Probed probed = probe(config, corpus, options, folder);
    const RunRecord& record = records.emplace_back(probed.record);
    if (seed == first_seed) {
      first_sites = probed.sites;
      if (options.weights)
        std::cout << "weights of step " << probed.step << ": " << escape_controls(options.weights->path)
                  << '\n';
      std::cout << "seed  loss                grad first/last     growth\n";
    }
    std::cout << aligned_left(std::to_string(seed), 6) << figures_text({record}) << std::endl;
    if (record.first_nonfinite) {
      diverged = true;
      print_error(text("[probe] seed ", seed, ", batch ", record.first_nonfinite->step, ": ",
                       text_of(*record.first_nonfinite), " is not finite; the rows are in ",
                       folder.file(layers_file), "; try another model.init or model.norm_placement"));
    }
  }
  if (seeds > 1) std::cout << aligned_left("all", 6) << figures_text(records) << '\n';
  std::cout << "\nresidual stream of seed " << first_seed << ":\n";
  print_streams(first_sites);
  std::cout << "\nin " << escape_controls(out.string())
            << "; every site as a picture: scripts/plot.py layers " << shell_word(out.string()) << '\n';
  return diverged ? Exit::diverged : Exit::ok;
}

}  // namespace

const Command probe_command = {
    .name = "probe",
    .arguments = "CONFIG",
    .purpose = "activations and gradients at initialisation, or of given weights",
    .details = "Prints every layer; trains nothing.",
    .options = {set_option,
                threads_option,
                {"seeds", "N", "seeds, from train.seed up (default: 1)"},
                {"batches", "K",
                 "batches a seed (default: 1); layers.csv has root mean squares over them, params.csv the norm "
                 "of the mean gradient (grad_norm) and the mean norm (grad_norm_batch)"},
                {"from", "RUN|FILE", "take the weights of a run or of a safetensors file"},
                {"dump", "FILE", "write every tensor of the first seed's first batch to a safetensors file"},
                {"out", "DIR", "folder of the seeds' folders (default: runs/<name>-probe)"},
                {"overwrite", "", "replace an earlier probe in that folder"}},
    .run = run};

}  // namespace normscope
