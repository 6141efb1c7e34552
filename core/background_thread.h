// A thread that handles no signals: those are for the thread that computes.
#pragma once

#include <functional>
#include <thread>

namespace quire {

std::thread background_thread(std::function<void()> work);

}  // namespace quire
