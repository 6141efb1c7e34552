#include "core/ranks/processes/launch.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/support/expect_error.h"

namespace quire {
namespace {

using Variables = std::map<std::string, std::string>;

Launch launch(const Variables& variables) {
  return find_launch([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(Launch, EachLauncherIsKnownByItsVariables) {
  EXPECT_EQ(launch({}).way, Launch::Way::alone);
  EXPECT_EQ(launch({{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}}).way, Launch::Way::alone);
  const Launch open_mpi = launch({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "2"}, {"PMI_SIZE", "9"}});
  EXPECT_EQ(open_mpi.way, Launch::Way::mpi);
  EXPECT_EQ(open_mpi.size, 4);
  EXPECT_EQ(open_mpi.rank, 2);
  EXPECT_EQ(open_mpi.by, "mpirun of Open MPI (OMPI_COMM_WORLD_SIZE=4)");
  EXPECT_EQ(open_mpi.host_rank, std::nullopt);
  EXPECT_EQ(launch({{"PMI_SIZE", "2"}, {"PMI_RANK", "1"}}).by, "mpirun of MPICH or a relative (PMI_SIZE=2)");
  EXPECT_EQ(launch({{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", "1"}}).by, "srun (SLURM_STEP_NUM_TASKS=2)");
  EXPECT_EQ(launch({{"PMI_SIZE", "8"}, {"PMI_RANK", "5"}, {"MPI_LOCALRANKID", "1"}, {"SLURM_LOCALID", "3"}}).host_rank,
            1);
  // A batch script is no rank.
  EXPECT_EQ(launch({{"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}, {"SLURM_JOB_ID", "7"}}).way, Launch::Way::alone);
}

TEST(Launch, AFileComesBeforeAnyLauncher) {
  const Launch mine = launch({{"QUIRE_RENDEZVOUS", "/x/meet"}, {"QUIRE_RANK", "1"}, {"QUIRE_RANKS", "2"}});
  EXPECT_EQ(mine.way, Launch::Way::file);
  EXPECT_EQ(mine.rank, 1);
  EXPECT_EQ(mine.size, 2);
  EXPECT_EQ(mine.file, "/x/meet");
  // A job that is requeued keeps its number.
  const Launch slurm = launch({{"QUIRE_RENDEZVOUS", "/x/meet"},
                               {"SLURM_PROCID", "3"},
                               {"SLURM_STEP_NUM_TASKS", "4"},
                               {"SLURM_JOB_ID", "77"},
                               {"SLURM_STEP_ID", "0"},
                               {"SLURM_RESTART_COUNT", "2"}});
  EXPECT_EQ(slurm.file, "/x/meet.77.0.2");
  EXPECT_EQ(slurm.rank, 3);
  EXPECT_EQ(launch({{"QUIRE_RENDEZVOUS", "/x"}, {"QUIRE_RANK", "0"}, {"QUIRE_RANKS", "1"}}).way, Launch::Way::alone);
}

TEST(Launch, WhereRankZeroListensCanBeChosen) {
  const Variables ranks{{"QUIRE_RENDEZVOUS", "/x"}, {"QUIRE_RANK", "0"}, {"QUIRE_RANKS", "2"}};
  const auto with = [&](const std::string& name, const std::string& value) {
    Variables all = ranks;
    all[name] = value;
    return all;
  };
  EXPECT_EQ(launch(ranks).port, 0);
  EXPECT_EQ(launch(ranks).address, "");
  EXPECT_EQ(launch(with("QUIRE_PORT", "5005")).port, 5005);
  EXPECT_EQ(launch(with("QUIRE_ADDRESS", "node1")).address, "node1");
  for (const char* bad : {"", "0", "65536", "-1", "http", "80 "}) {
    EXPECT_ERROR(launch(with("QUIRE_PORT", bad)), ErrorKind::config, "QUIRE_PORT");
  }
  EXPECT_ERROR(launch(with("QUIRE_ADDRESS", "")), ErrorKind::config, "QUIRE_ADDRESS is empty");
  EXPECT_ERROR(launch(with("QUIRE_RENDEZVOUS", "")), ErrorKind::config, "QUIRE_RENDEZVOUS is empty");
}

TEST(Launch, ANumberOfRanksThatNoMachineHasIsRefused) {
  for (const char* many : {"65537", "1000000000"}) {
    EXPECT_ERROR(launch({{"QUIRE_RENDEZVOUS", "/x"}, {"QUIRE_RANK", "0"}, {"QUIRE_RANKS", many}}), ErrorKind::config,
                 fmt::format("QUIRE_RANKS is {}: at most 65536", many));
    EXPECT_ERROR(launch({{"PMI_RANK", "0"}, {"PMI_SIZE", many}}), ErrorKind::config, "at most 65536");
  }
  EXPECT_ERROR(launch({{"QUIRE_RENDEZVOUS", "/x"}, {"QUIRE_RANK", "0"}, {"QUIRE_RANKS", std::string(5000, '9')}}),
               ErrorKind::config, std::string(200, '9') + "\", which is no number of ranks");
}

TEST(Launch, EachRankHasAGpuOfItsOwn) {
  EXPECT_EQ(own_gpu(3, nullptr, 8), "3");
  EXPECT_EQ(own_gpu(1, "4,6", 8), "6");
  EXPECT_EQ(own_gpu(1, "GPU-a,GPU-b", 0), "GPU-b");
  EXPECT_EQ(own_gpu(5, nullptr, 4), "1");
  // There is one GPU, as srun --gpus-per-task=1 gives, then none at all, then none that may be used.
  EXPECT_EQ(own_gpu(1, "6", 8), "");
  EXPECT_EQ(own_gpu(1, nullptr, 0), "");
  EXPECT_EQ(own_gpu(1, "", 8), "");
}

TEST(Launch, HowLongRanksWaitForEachOther) {
  Variables two{{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "0"}};
  EXPECT_EQ(launch(two).patience.count(), 300);
  two["QUIRE_START_TIMEOUT"] = "20";
  EXPECT_EQ(launch(two).patience.count(), 20);
  for (const char* wrong : {"0", "-1", "1m", ""}) {
    two["QUIRE_START_TIMEOUT"] = wrong;
    EXPECT_ERROR(launch(two), ErrorKind::config, "the environment variable QUIRE_START_TIMEOUT is ");
  }
}

TEST(Launch, WhatIsNoNumberOfRanksIsRefused) {
  for (const Variables& wrong :
       {Variables{{"QUIRE_RENDEZVOUS", "/x/meet"}}, Variables{{"QUIRE_RENDEZVOUS", "/x/meet"}, {"QUIRE_RANKS", "2"}},
        Variables{{"QUIRE_RENDEZVOUS", "/x/meet"}, {"QUIRE_RANK", "0"}}}) {
    EXPECT_ERROR(launch(wrong), ErrorKind::config, "QUIRE_RENDEZVOUS is /x/meet, but which rank this is");
  }
  for (const auto& [ranks, rank] : {std::pair{"0", "0"}, std::pair{"2", "2"}, std::pair{"2", "7"}}) {
    EXPECT_ERROR(launch({{"QUIRE_RENDEZVOUS", "/x/meet"}, {"QUIRE_RANKS", ranks}, {"QUIRE_RANK", rank}}),
                 ErrorKind::config,
                 fmt::format("QUIRE_RANK is {} and QUIRE_RANKS is {}: ranks are counted from 0", rank, ranks));
  }
  const Variables nowhere{{"QUIRE_RANKS", "2"}};
  EXPECT_ERROR(launch(nowhere), ErrorKind::config, "QUIRE_RANKS is set, but not QUIRE_RENDEZVOUS");
  const Variables words{{"QUIRE_RENDEZVOUS", "/x/meet"}, {"QUIRE_RANK", "0"}, {"QUIRE_RANKS", "two"}};
  EXPECT_ERROR(launch(words), ErrorKind::config, "QUIRE_RANKS is \"two\", which is no number of ranks");
}

}  // namespace
}  // namespace quire
