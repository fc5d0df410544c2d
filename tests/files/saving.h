#pragma once
// Saves that replace one another, with and without the exchange of two folders.

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <string>

#include "levin/files/atomic.h"
#include "levin/files/file_writer.h"

namespace levin::files::testing {

/// Two files that must agree.
inline void save(const std::filesystem::path& final_path, const std::string& text) {
  StagedDirectory staged(final_path, [](const std::filesystem::path&) { return true; });
  for (const char* name : {"a", "b"}) {
    FileWriter file(staged.path() / name);
    file.write(text);
    file.close();
  }
  staged.commit();
}

/// From now on this process cannot exchange two folders, as on some network file systems.
inline bool forbid_exchange() {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_renameat2, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{std::size(program), program};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

}  // namespace levin::files::testing
