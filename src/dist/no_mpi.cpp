// Builds without MPI.
#include "dist/ranks.h"

namespace normscope {

std::unique_ptr<Ranks> mpi_ranks() {
  refuse("mpi",
         "--mpi: this build has no MPI; install one (libopenmpi-dev and openmpi-bin, or libmpich-dev and "
         "mpich) and build with cmake -DNORMSCOPE_MPI=ON");
}

}  // namespace normscope
