// Eigenvalues of symmetric matrices.
#pragma once

#include <vector>

#include "core/types.h"

namespace normscope {

// Of the symmetric matrix a (n, n), ascending. `a` becomes its eigenvectors of length 1, a row each, or is
// lost where they are not wanted. By the calling thread. Error: LAPACK finds none, as in a matrix of NaN.
std::vector<double> eigenvalues(Index n, double* a, bool want_vectors);

}  // namespace normscope
