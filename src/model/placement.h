// Where the norms sit around a sublayer F: one row a placement. The config's allowed values, the block's
// code, the parameter names and the equations that are printed all follow from the row.
#pragma once

#include <span>
#include <vector>

#include "model/config.h"

namespace normscope {

// y = alpha * x + a * N_branch(F(N_in(x) * input_scale)), then N_out(y): each N only where its flag says so.
struct Placement {
  PlacementKind kind;
  const char* name;
  const char* formula;
  const char* source;
  bool norm_in;                        // a norm on what F reads
  bool norm_branch;                    // a norm on what F returns
  bool norm_out;                       // a norm on the sum
  bool embed_norm;                     // a norm on the embedding output, before block 1
  bool final_norm;                     // whether `final_norm: auto` means a norm before the head
  bool learned_scale;                  // a: a parameter, 0 at start, on what F returns
  double (*alpha)(Index n_layer);      // factor of the stream in the sum
  double (*input_scale)(Index block);  // factor on what F reads; blocks count from 1
  double (*init_gain)(Index n_layer);  // factor on the init of v, attn.out, ffn.in, ffn.gate, ffn.out
};

// All rows. `mix` is not among them: it is a pattern of two others, resolved by placements_of().
std::span<const Placement> placement_table();

const Placement& placement_row(PlacementKind kind);

// The placement of each block, L rows: a single placement repeated, a list as given, `mix` spelled out.
std::vector<const Placement*> placements_of(const ModelConfig& config);

}  // namespace normscope
