// Starts threads. A thread that cannot be started is Error(memory), whose message names the limits of this machine.
#pragma once

#include <functional>
#include <string>
#include <thread>

namespace quire {

// `what` names the thread in messages: "thread 3 of 8 (run.threads)".
std::thread start_thread(const std::string& what, std::function<void()> work);

// Starts a thread that handles no signals, so that signals reach the thread that computes.
std::thread background_thread(std::function<void()> work);

}  // namespace quire
