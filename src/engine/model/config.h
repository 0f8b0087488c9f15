// The resolved `model` section of a config. Every field holds its final value; nothing is 'auto'.
#pragma once

#include <vector>

#include "core/types.h"
#include "model/norms.h"
#include "model/placement.h"

namespace normscope {

enum class Position { learned, rope, sinusoidal, none };
enum class InitScheme { gpt2, xavier_normal, xavier_uniform, kaiming_normal };

struct InitConfig {
  InitScheme scheme = InitScheme::gpt2;
  double std = 0.02;             // gpt2: standard deviation of matrices, before residual_scaling, and default of embed_std
  double embed_std = 0.02;       // token and position embeddings
  bool residual_scaling = true;  // gpt2: attn.out and ffn.out get std/sqrt(2L)
  bool zero_branches = false;    // attn.out and ffn.out start at 0
};

struct ModelConfig {
  Index n_layer = 6;    // L
  Index n_head = 6;     // H
  Index d_model = 192;  // C
  Index d_ff = 768;     // F
  Index context = 128;  // T

  NormKind norm = NormKind::layernorm;
  double norm_eps = 1e-5;
  bool norm_eps_outside = false;  // divide by sqrt(var) + eps instead of sqrt(var + eps)
  bool norm_affine = true;        // gain and bias
  bool norm_bias = true;
  Index norm_groups = 4;     // norms over groups
  double norm_alpha = 0.5;   // initial alpha of norms that have one
  bool norm_detach = false;  // the backward takes a norm's statistics for constants
  bool embed_norm = false;   // a norm on the embeddings
  // One for all blocks, or one per block.
  std::vector<BlockPlacement> norm_placement = {PlacementKind::pre};
  bool final_norm = true;
  bool residual = true;
  DepthFactor branch_scale;  // of L
  LearnedScale branch_scale_learned = LearnedScale::none;
  Activation activation = Activation::gelu;
  bool bias = false;      // qkv, attention out
  bool ffn_bias = false;  // the FFN's matrices
  bool qk_norm = false;
  bool qkv_norm = false;
  bool inner_norm = false;
  Position position = Position::learned;
  bool tie_embeddings = true;
  double dropout = 0.0;
  InitConfig init;
};

}  // namespace normscope
