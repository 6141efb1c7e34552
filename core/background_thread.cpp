#include "core/background_thread.h"

#include <csignal>
#include <utility>

namespace quire {

std::thread background_thread(std::function<void()> work) {
  // A thread begins with the mask of the one that starts it.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(work));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace quire
