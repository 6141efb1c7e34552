// Starts threads. One that cannot be started is Error(memory) that names the limits here.
#pragma once

#include <functional>
#include <string>
#include <thread>

namespace quire {

// what: "thread 3 of 8 (run.threads)".
std::thread start_thread(const std::string& what, std::function<void()> work);

// A thread that handles no signals: those are for the thread that computes.
std::thread background_thread(std::function<void()> work);

}  // namespace quire
