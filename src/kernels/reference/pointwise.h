// The pointwise kernels by the C++ library's functions, in double: the engine's double path, and what the
// fast kernels are tested against. Serial.
#pragma once

#include "kernels/pointwise.h"

namespace normscope::reference {

void activation(ActivationKind kind, Index n, const double* x, double* y, double* derivative);
void swiglu_forward(Index n, const double* gate, const double* x, double* y);
void swiglu_backward(Index n, const double* gate, const double* x, const double* dy, double* dgate,
                     double gate_beta, double* dx, double beta);

void axpby(Index n, double alpha, const double* x, double beta, double* y);
void axpy(Index n, double alpha, const double* a, const double* b, double* y);
void multiply(Index n, const double* a, const double* b, double* y);
double dot(Index n, const double* a, const double* b);
double sum_squares(Index n, const double* x);
TensorStats tensor_stats(Index n, const double* x);
TensorStats column_stats(Index rows, Index cols, const double* x, double* squares);
double sum_cosines(Index rows, Index cols, const double* a, const double* b);

WeightChange adamw(Index n, const AdamW<double>& step, const double* g, double* w, double* m, double* v);
WeightChange momentum_step(Index n, const MomentumStep<double>& step, const double* g, double* w, double* v);

}  // namespace normscope::reference
