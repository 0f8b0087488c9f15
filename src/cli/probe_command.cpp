// normscope probe CONFIG: activations and gradients without training.
#include "train/probe.h"

#include <filesystem>
#include <iostream>

#include "cli/commands.h"
#include "cli/terminal.h"
#include "config/load.h"
#include "io/utf8.h"
#include "logs/record.h"
#include "model/model.h"
#include "train/estimates.h"

namespace normscope {
namespace fs = std::filesystem;
namespace {

// Prints the residual stream after each block; layer 0 is the embedding.
void print_streams(const std::vector<SiteRow>& sites) {
  Rows table = {{"layer", "stream rms", "gradient rms"}};
  std::vector<double> gradients;
  for (const SiteRow& row : sites) {
    if (row.id.site != Site::stream) continue;
    gradients.push_back(row.grad_rms);
    table.push_back(
        {std::to_string(row.id.layer), significant_text(row.rms), significant_text(row.grad_rms)});
  }
  print_table(table);
  std::cout << "gradient by layer: " << sparkline(gradients) << '\n';
}

// Removes the seeds of an earlier probe in that folder: averages over it would mix two configs.
void remove_seeds(const fs::path& out, const InputFiles& inputs) {
  std::error_code ignored;
  std::vector<std::string> folders;
  for (const fs::directory_entry& entry : fs::directory_iterator(out, ignored)) {
    if (entry.path().filename().string().starts_with(seed_prefix)) folders.push_back(entry.path());
  }
  for (const std::string& folder : folders)  // before the first is removed
    require_usable(folder, Existing::overwrite, inputs);
  for (const std::string& folder : folders) {
    RunFolder(folder, Existing::overwrite);
    fs::remove(folder, ignored);  // unless other files lie in it
  }
}

Exit run(const CommandLine& line) {
  const Loaded loaded = load_config(line.positionals()[0], line.all_of("set"));
  RunConfig config = loaded.config;
  set_up_threads(line, config.train.threads);
  const Corpus corpus = corpus_of(config);
  require_memory(config, corpus.vocab.size(), config.train.batch_size);

  const Index seeds = line.number_of<Index>("seeds", 1, 100'000, 1);
  const fs::path out = line.text_of("out").value_or("runs/" + config.name + "-probe");
  const std::optional<std::string> from = line.text_of("from");
  ProbeOptions options;
  options.batches = line.number_of<Index>("batches", 1, 1'000'000, 1);
  if (line.step() && !from) refuse("probe", "--step is of the weights of a run; name it with --from RUN");
  std::optional<SafetensorsFile> weights;  // read before an earlier probe is removed
  if (from) {
    weights.emplace(weights_of(*from, line.step()));
    require_weights(*weights, ParameterLayout(config.model, corpus.vocab.size()));
    options.weights = &*weights;
  }
  const bool overwrite = line.has("overwrite");
  const Existing existing = overwrite ? Existing::overwrite : Existing::refuse;
  const InputFiles inputs = inputs_of(loaded, weights ? weights->path() : "");

  const Index first_seed = config.train.seed;
  const auto folder_of = [&](Index seed) { return (out / (seed_prefix + std::to_string(seed))).string(); };
  for (Index seed = first_seed; seed < first_seed + seeds; ++seed)  // before the first is computed
    require_usable(folder_of(seed), existing, inputs);
  const std::string dump = line.text_of("dump").value_or("");
  if (!dump.empty()) require_output(dump, inputs, overwrite);
  if (overwrite) remove_seeds(out, inputs);
  if (weights)
    std::cout << "weights of step " << step_of(*weights) << ": " << escape_controls(weights->path())
              << checksum_note(weights->path()) << '\n';
  std::cout << "seed  loss         first/last   growth\n";
  bool diverged = false;
  std::vector<SiteRow> first_sites;
  for (Index seed = first_seed; seed < first_seed + seeds; ++seed) {
    config.train.seed = seed;
    options.dump = seed == first_seed ? dump : "";
    RunFolder folder(folder_of(seed), existing);
    const Probed probed = probe(config, corpus, options, folder);
    const RunRecord& record = probed.record;
    if (seed == first_seed) first_sites = probed.sites;
    std::cout << aligned_left(std::to_string(seed), 6);
    for (const auto figure : {record.final_train_loss, record.grad_first_last})
      std::cout << aligned_left(significant_text(*figure, 5), 13);
    std::cout << significant_text(*record.growth, 5) << std::endl;
    if (record.first_nonfinite) {
      diverged = true;
      print_error(text("[probe] seed ", seed, ", batch ", record.first_nonfinite->step, ": ",
                       text_of(*record.first_nonfinite), " is not finite; the rows are in ",
                       folder.file(layers_file), "; try another model.init or model.norm_placement"));
    }
  }
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
    .purpose = "measure activations and gradients without training",
    .details = "Measures each layer of a fresh model or of --from's. Exit code 3 if a value is not finite.",
    .options = {set_option,
                threads_option,
                {"seeds", "N", "seeds, from train.seed up (default: 1)"},
                {"batches", "K",
                 "batches a seed (default: 1); layers.csv has root mean squares over them, params.csv the "
                 "norm of the mean gradient (grad_norm) and the mean norm (grad_norm_batch)"},
                {"from", "RUN|FILE", "take the weights of a run or of a safetensors file"},
                step_option,
                {"dump", "FILE", "write every tensor of the first seed's first batch to a safetensors file"},
                {"out", "DIR", "folder of the seeds' folders (default: runs/<name>-probe)"},
                {"overwrite", "", "replace an earlier probe in that folder, and the file of --dump"}},
    .run = run};

}  // namespace normscope
