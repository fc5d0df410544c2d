#include "levin/base/check.h"
#include "levin/comm/environment/launchers_impl.h"
#include "levin/comm/environment/port.h"
#include "levin/comm/environment/variables.h"

namespace levin::comm::detail {
namespace {

struct MpiNames {
  const char *rank, *size, *local_rank, *local_size;
};

constexpr MpiNames kOpenMpi = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                               "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr MpiNames kHydra = {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};

// srun --mpi=pmi2 sets PMI_RANK as well; Hydra's own ranks have their local rank beside it.
std::optional<MpiNames> names_of(const Variables& variables) {
  if (variables.has(kOpenMpi.rank)) return kOpenMpi;
  if (!variables.has(kHydra.rank)) return std::nullopt;
  const bool by_srun = variables.has("SLURM_STEP_ID") && !variables.has(kHydra.local_rank);
  return by_srun ? std::nullopt : std::optional(kHydra);
}

// The host that mpirun runs on (in OMPI_MCA_orte_hnp_uri) may be a login node without any rank.
std::string mpi_master(const Variables& variables, bool one_host) {
  if (variables.has("MASTER_ADDR")) return variables.text_or("MASTER_ADDR", "");
  LEVIN_CHECK(one_host, "comm.environment.master",
              "mpirun started ranks on several hosts and does not say which of them is rank 0's; "
              "run it with -x MASTER_ADDR=HOST (Open MPI) or -genv MASTER_ADDR HOST (MPICH)");
  return "127.0.0.1";
}

std::string mpi_job(const Variables& variables) {
  for (const char* name : {"OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE"}) {
    if (variables.has(name)) return variables.text_or(name, "");
  }
  return "mpirun";
}

}  // namespace

std::optional<Environment> read_mpirun(const Variables& variables) {
  const auto names = names_of(variables);
  if (!names) return std::nullopt;
  Environment environment;
  environment.launcher = "mpirun";
  RankInfo& info = environment.rank;
  info.rank = variables.number(names->rank, {}, names->size);
  info.world_size = variables.number(names->size, {.least = 1}, names->rank);
  info.local_rank = variables.number(names->local_rank, {}, names->rank);
  info.local_world_size = variables.number(names->local_size, {.least = 1}, names->local_rank);
  // No variable holds it; ranks are dealt out host by host unless --map-by says otherwise.
  environment.node_rank = info.rank / info.local_world_size;
  environment.master_address = mpi_master(variables, info.local_world_size == info.world_size);
  environment.run_id = mpi_job(variables);
  environment.master_port =
      variables.number_or("MASTER_PORT", kAnyPort, derived_port(environment.run_id));
  return environment;
}

}  // namespace levin::comm::detail
