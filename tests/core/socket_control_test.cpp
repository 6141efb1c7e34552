// Tests the control of ranks that are processes; here they are threads that talk over real sockets.
#include "core/ranks/processes/socket_control.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <functional>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "core/progress.h"
#include "core/ranks/processes/contact.h"
#include "core/ranks/ranks.h"
#include "tests/support/expect_error.h"

namespace quire {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Calls work with the control of each rank, on a thread each, and returns the errors by rank; then all leave.
std::vector<std::string> on_sockets(int size, const std::function<void(SocketControl&)>& work,
                                    const SocketControlOptions& options = {}) {
  std::vector<std::string> errors(static_cast<size_t>(size));
  Rendezvous place;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const Member member{rank, size, fmt::format("host{}", rank)};
      std::unique_ptr<SocketControl> control =
          rank == 0
              ? std::make_unique<SocketControl>(member, place.receive(size, seconds(20)), options)
              : std::make_unique<SocketControl>(member, connect_to_root(place.contact(), member, seconds(20)), options);
      std::string& said = errors[static_cast<size_t>(rank)];
      try {
        work(*control);
      } catch (const Error& error) {
        const bool reports = control->fail(error.kind(), error.what());
        said = fmt::format("{}{} {}", reports ? "reports " : "", error.exit_code(), error.what());
      }
      const std::optional<int> code = control->leave();
      EXPECT_EQ(code.has_value(), !said.empty()) << rank << ' ' << said;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

TEST(SocketControl, CallsReturnTheSameOnAllRanks) {
  for (const int size : {2, 3, 5}) {
    const auto errors = on_sockets(size, [&](SocketControl& control) {
      const int rank = control.rank();
      for (int round = 0; round < 30; ++round) {
        const auto all = control.gather(std::string(static_cast<size_t>(rank + round), 'x'));
        ASSERT_EQ(all.size(), static_cast<size_t>(size));
        for (size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i].size(), i + static_cast<size_t>(round));
        ASSERT_EQ(control.broadcast(fmt::format("{} {}", rank, round), round % size),
                  fmt::format("{} {}", round % size, round));
        std::array<double, 2> values{0.1 * rank, -1.0};
        control.reduce(Control::Reduction::sum, values);
        double expected = 0;
        for (int i = 0; i < size; ++i) expected += 0.1 * i;
        ASSERT_EQ(values, (std::array<double, 2>{expected, -1.0 * size}));
        control.barrier();
      }
      // More than a socket takes at once.
      const std::string large(static_cast<size_t>(3'000'000 + rank), static_cast<char>('a' + rank));
      const auto all = control.gather(large);
      ASSERT_EQ(all[static_cast<size_t>(rank)], large);
      ASSERT_EQ(all[1].size(), 3'000'001U);
    });
    EXPECT_EQ(errors, std::vector<std::string>(static_cast<size_t>(size)));
  }
}

TEST(SocketControl, AnErrorOfOneIsThrownByAllAndReportedByOne) {
  for (const int failing : {0, 1, 2}) {
    const auto errors = on_sockets(3, [&](SocketControl& control) {
      control.barrier();
      if (control.rank() == failing) fail(ErrorKind::disk, "the disk is full");
      control.barrier();
    });
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(errors[static_cast<size_t>(rank)],
                rank == failing ? "reports 7 the disk is full" : "7 the disk is full");
    }
  }
  // All have it at the same time.
  const auto errors = on_sockets(4, [](SocketControl&) { fail(ErrorKind::data, "the file is damaged"); });
  EXPECT_EQ(std::count(errors.begin(), errors.end(), "reports 3 the file is damaged"), 1);
  EXPECT_EQ(std::count(errors.begin(), errors.end(), "3 the file is damaged"), 3);
}

TEST(SocketControl, WhoDoesNotComeIsNamedOnAllRanks) {
  for (const bool collective : {false, true}) {
    const auto errors = on_sockets(
        3,
        [&](SocketControl& control) {
          control.set_deadline(milliseconds(300));
          control.set_activity({control.rank(), control.host(), 4, control.rank() == 2 ? "computing" : "summing"});
          control.barrier();
          if (control.rank() != 2 && collective) control.overdue(1);
          if (control.rank() != 2 && !collective) control.barrier();
          for (;;) {
            control.check();
            std::this_thread::sleep_for(milliseconds(5));
          }
        },
        {.deadline = seconds(20)});
    int reports = 0;
    for (const std::string& error : errors) {
      reports += error.starts_with("reports ") ? 1 : 0;
      EXPECT_NE(error.find("6 rank 2 on host2, step 4, summing: it does not answer since 0.3 s"), std::string::npos)
          << error;
    }
    EXPECT_EQ(reports, 1);
  }
}

// A rank's process is gone when its connection is: here it simply closes it.
TEST(SocketControl, WhoIsGoneIsNamedAtOnce) {
  Rendezvous place;
  std::thread victim([&] {
    const Member member{2, 3, "c"};
    const std::unique_ptr<FrameSocket> socket = connect_to_root(place.contact(), member, seconds(20));
    socket->send({FrameType::activity, 0, packed_activity({2, "c", 9, "saving the checkpoint"})});
  });
  std::array<std::string, 2> errors;
  const auto wait = [&](SocketControl& control) {
    try {
      control.barrier();
    } catch (const SharedError& error) {
      errors[static_cast<size_t>(control.rank())] = error.what();
      control.fail(error.kind(), error.what());
    }
    control.leave();
  };
  std::thread other([&] {
    const Member member{1, 3, "b"};
    SocketControl control(member, connect_to_root(place.contact(), member, seconds(20)));
    wait(control);
  });
  const auto begun = std::chrono::steady_clock::now();
  SocketControl control({0, 3, "a"}, place.receive(3, seconds(20)));
  wait(control);
  victim.join();
  other.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begun, seconds(15));
  EXPECT_TRUE(errors[0].starts_with("rank 2 on c, step 9, saving the checkpoint: its process is gone")) << errors[0];
  EXPECT_EQ(errors[1], errors[0]);
}

TEST(SocketControl, OfRankZeroThatIsGoneRankOneSpeaks) {
  testing::internal::CaptureStderr();
  Rendezvous place;
  std::array<std::string, 2> errors;
  std::vector<std::thread> others;
  for (const int rank : {1, 2}) {
    others.emplace_back([&, rank] {
      const Member member{rank, 3, "b"};
      SocketControl control(member, connect_to_root(place.contact(), member, seconds(20)));
      try {
        control.barrier();
      } catch (const SharedError& error) {
        EXPECT_FALSE(control.fail(error.kind(), error.what()));  // it is said already
        errors[static_cast<size_t>(rank) - 1] = error.what();
      }
      EXPECT_EQ(control.leave(), 6);
    });
  }
  place.receive(3, seconds(20));  // and gone again
  for (std::thread& other : others) other.join();
  EXPECT_TRUE(errors[0].starts_with("rank 0 on ")) << errors[0];
  EXPECT_TRUE(errors[1].starts_with("rank 0 on ")) << errors[1];
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "quire: error: " + errors[0] + "\n");
}

TEST(SocketControl, WhoseWorkGoesOnIsWaitedFor) {
  const auto errors = on_sockets(2, [](SocketControl& control) {
    control.set_deadline(milliseconds(300));
    control.barrier();
    if (control.rank() == 1) {
      note_progress();
      control.set_activity({1, control.host(), 0, "verifying the corpus"});
      for (int i = 0; i < 150; ++i) {
        std::this_thread::sleep_for(milliseconds(10));
        note_progress();
      }
    }
    control.barrier();
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

// Rank 0 answers no more. Rank 1 heard it last, and yet says so before rank 2 ends.
TEST(SocketControl, OfRankZeroThatIsSilentRankOneSpeaksFirst) {
  testing::internal::CaptureStderr();
  Rendezvous place;
  std::array<std::string, 2> errors;
  std::array<std::chrono::steady_clock::time_point, 2> ended;
  std::vector<std::thread> others;
  for (const int rank : {1, 2}) {
    others.emplace_back([&, rank] {
      const Member member{rank, 3, "b"};
      SocketControl control(member, connect_to_root(place.contact(), member, seconds(20)), {.deadline = seconds(1)});
      const size_t at = static_cast<size_t>(rank) - 1;
      try {
        control.barrier();
      } catch (const SharedError& error) {
        EXPECT_FALSE(control.fail(error.kind(), error.what()));  // it is said already
        errors[at] = error.what();
      }
      ended[at] = std::chrono::steady_clock::now();
    });
  }
  const std::vector<Rendezvous::Peer> peers = place.receive(3, seconds(20));
  std::this_thread::sleep_for(seconds(1));
  peers[1].socket->send({FrameType::activity, 0, packed_activity({0, "a", 7, "summing"})});
  for (std::thread& other : others) other.join();
  EXPECT_TRUE(errors[0].starts_with("rank 0 on a: it does not answer")) << errors[0];
  EXPECT_TRUE(errors[1].starts_with("rank 0 on ")) << errors[1];
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "quire: error: " + errors[0] + "\n");
  // Rank 0 would learn of it when it goes on.
  std::vector<Frame> frames;
  peers[1].socket->receive(frames);
  EXPECT_TRUE(std::any_of(frames.begin(), frames.end(), [](const Frame& one) { return one.type == FrameType::told; }));
  EXPECT_LT(ended[0] + milliseconds(500), ended[1]);
}

// Rank 0 is stopped in the middle of reading, for longer than the others wait, and rank 1 has said so and gone when it
// goes on. Neither it nor one that is still there reports that.
TEST(SocketControl, RankZeroThatWasStoppedSaysNothingOfTheOthers) {
  Rendezvous place;
  const pid_t root = ::fork();
  ASSERT_GE(root, 0);
  if (root == 0) {
    SocketControl control({0, 3, "a"}, place.receive(3, seconds(20)), {.deadline = milliseconds(2500)});
    try {
      control.barrier();
    } catch (const SharedError& error) {
      std::this_thread::sleep_for(milliseconds(300));  // the other one asks first
      ::_exit(control.fail(error.kind(), error.what()) ? 1 : 2);
    }
    ::_exit(3);
  }
  std::unique_ptr<FrameSocket> first = connect_to_root(place.contact(), {1, 3, "b"}, seconds(20));
  const std::unique_ptr<FrameSocket> other = connect_to_root(place.contact(), {2, 3, "c"}, seconds(20));
  // There is so much data that rank 0 does nothing but read.
  const std::string activity = packed_activity({1, "b", 4, std::string(1 << 20, 'x')});
  const auto until = std::chrono::steady_clock::now() + milliseconds(300);
  while (std::chrono::steady_clock::now() < until) {
    first->flush();
    if (!first->has_unsent()) first->send({FrameType::activity, 0, activity});
  }
  while (first->has_unsent()) first->flush();
  // Frames that are not yet with the host of rank 0 would be lost with the connection.
  for (int unread = 1; unread > 0; std::this_thread::sleep_for(milliseconds(1))) {
    ASSERT_EQ(::ioctl(first->descriptor(), SIOCOUTQ, &unread), 0);
  }
  ::kill(root, SIGSTOP);
  std::this_thread::sleep_for(milliseconds(3000));
  first->send({FrameType::told});
  ASSERT_FALSE(first->has_unsent());
  first.reset();
  ::kill(root, SIGCONT);
  std::optional<Frame> verdict;
  std::vector<Frame> frames;
  while (!verdict && !other->closed()) {
    std::this_thread::sleep_for(milliseconds(1));
    frames.clear();
    other->receive(frames);
    for (const Frame& frame : frames) {
      if (frame.type == FrameType::failed) other->send({FrameType::fail, frame.number, frame.text});
      if (frame.type == FrameType::verdict) verdict = frame;
    }
  }
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->number, 0U);
  int status = 0;
  ASSERT_EQ(::waitpid(root, &status, 0), root);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 2);
}

TEST(SocketControl, StrangersAreNotLetIn) {
  Rendezvous place;
  const auto contact = nlohmann::json::parse(place.contact());
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(contact.at("port").get<uint16_t>());
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::vector<int> strangers;
  for (const std::string& says : {std::string("GET / HTTP/1.1\r\n\r\n                        "), std::string()}) {
    strangers.push_back(::socket(AF_INET, SOCK_STREAM, 0));
    ASSERT_EQ(::connect(strangers.back(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    ASSERT_EQ(::send(strangers.back(), says.data(), says.size(), 0), static_cast<ssize_t>(says.size()));
  }
  auto wrong = contact;
  wrong["token"] = std::string(32, '0');
  std::thread impostor([&] {
    EXPECT_ERROR((connect_to_root(wrong.dump(), {1, 2, "x"}, milliseconds(100))), ErrorKind::communication,
                 "rank 1 on x cannot connect to rank 0 at ");
  });
  impostor.join();
  EXPECT_ERROR((place.receive(3, milliseconds(300))), ErrorKind::communication,
               "those that did not connect to it: 1, 2. Its address is ");
  std::unique_ptr<FrameSocket> kept;
  std::thread member([&] { kept = connect_to_root(place.contact(), {1, 2, "x"}, seconds(20)); });
  EXPECT_EQ(place.receive(2, seconds(20)).at(1).host, "x");
  member.join();
  for (const int stranger : strangers) ::close(stranger);
}

// A connection to the port as anyone may make it.
std::unique_ptr<FrameSocket> strange_connection(const Rendezvous& place) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(nlohmann::json::parse(place.contact()).at("port").get<uint16_t>());
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(::connect(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  return std::make_unique<FrameSocket>(descriptor);
}

// More of them than are heard at once say nothing, and others come all the time: nobody waits for them.
TEST(SocketControl, StrangersHoldNobodyUp) {
  Rendezvous place;
  std::vector<std::unique_ptr<FrameSocket>> strangers;
  for (int i = 0; i < 200; ++i) strangers.push_back(strange_connection(place));
  auto begun = std::chrono::steady_clock::now();
  std::unique_ptr<FrameSocket> kept;
  std::thread member([&] { kept = connect_to_root(place.contact(), {1, 2, "x"}, seconds(20)); });
  EXPECT_EQ(place.receive(2, seconds(20)).at(1).host, "x");
  member.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begun, seconds(2));
  std::atomic<bool> over = false;
  std::thread crowd([&] {
    while (!over) {
      strange_connection(place);
      std::this_thread::sleep_for(milliseconds(1));
    }
  });
  begun = std::chrono::steady_clock::now();
  EXPECT_ERROR(place.receive(3, milliseconds(300)), ErrorKind::communication, "those that did not connect to it: 1, 2");
  EXPECT_LT(std::chrono::steady_clock::now() - begun, seconds(2));
  over = true;
  crowd.join();
}

// A first frame that claims gigabytes is no hello, with or without the token.
TEST(SocketControl, StrangersClaimNoMemory) {
  Rendezvous place;
  const std::string token = nlohmann::json::parse(place.contact()).at("token");
  const auto stranger = strange_connection(place);
  const std::array<uint64_t, 3> header{0, 1, uint64_t{1} << 31};  // hello, of rank 1
  std::string text(reinterpret_cast<const char*>(header.data()), sizeof(header));
  text += token + std::string(1 << 20, 'x');
  std::thread writer([&] {
    const timeval patience{2, 0};
    ::setsockopt(stranger->descriptor(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    ::fcntl(stranger->descriptor(), F_SETFL, 0);
    (void)::send(stranger->descriptor(), text.data(), text.size(), MSG_NOSIGNAL);
  });
  EXPECT_ERROR(place.receive(2, milliseconds(300)), ErrorKind::communication, "those that did not connect to it: 1");
  writer.join();
  std::vector<Frame> none;
  stranger->receive(none);
  EXPECT_TRUE(stranger->closed());
}

TEST(SocketControl, ThePortOfRankZeroCanBeChosen) {
  const int free = nlohmann::json::parse(Rendezvous().contact()).at("port");
  Rendezvous place("127.0.0.1", free);
  const auto contact = nlohmann::json::parse(place.contact());
  EXPECT_EQ(contact.at("port"), free);
  EXPECT_EQ(contact.at("addresses"), nlohmann::json({"127.0.0.1"}));
  EXPECT_ERROR(Rendezvous("", free), ErrorKind::communication,
               fmt::format("rank 0 cannot listen on the TCP port {} (QUIRE_PORT) for the other ranks: Address", free));
}

TEST(SocketControl, WhatIsNoContactIsRefused) {
  const std::string good = Rendezvous().contact();
  EXPECT_TRUE(is_contact(good));
  const auto changed = [&](const char* key, const nlohmann::json& value) {
    auto json = nlohmann::json::parse(good);
    json[key] = value;
    return json.dump();
  };
  for (const std::string& bad :
       {std::string("a note of mine"), std::string("{}"), std::string("[1, 2]"), std::string(60000, '['),
        changed("port", 0), changed("port", "5"), changed("port", 65536), changed("port", -1), changed("port", 1.5),
        changed("addresses", "127.0.0.1"), changed("addresses", nlohmann::json::array()), changed("addresses", {1}),
        changed("token", 7), changed("token", ""), changed("more", 1)}) {
    EXPECT_FALSE(is_contact(bad)) << bad.substr(0, 100);
    EXPECT_ERROR((connect_to_root(bad, {1, 2, "x"}, seconds(1))), ErrorKind::communication, "rank 1 on x: ");
  }
}

// The first connection of a rank, as a client that does not wait for its welcome makes it.
std::unique_ptr<FrameSocket> hasty_connection(const Rendezvous& place, int rank) {
  const std::string token = nlohmann::json::parse(place.contact()).at("token");
  auto made = strange_connection(place);
  made->send({FrameType::hello, static_cast<uint64_t>(rank), token + "hasty"});
  return made;
}

// Rank 0 was held up: rank 1 has given its first connection up, before or after that is taken, and comes again.
TEST(SocketControl, ARankWhoseWelcomeCameTooLateComesAgain) {
  for (const bool before : {true, false}) {
    Rendezvous place;
    std::unique_ptr<FrameSocket> given_up = hasty_connection(place, 1);
    if (before) given_up.reset();
    std::vector<Rendezvous::Peer> peers;
    std::thread root([&] { EXPECT_NO_THROW(peers = place.receive(3, seconds(20))); });
    std::vector<Frame> welcome;
    while (!before && welcome.empty()) {
      given_up->receive(welcome);
      std::this_thread::sleep_for(milliseconds(1));
    }
    given_up.reset();
    const auto first = connect_to_root(place.contact(), {1, 3, "first"}, seconds(5));
    const auto second = connect_to_root(place.contact(), {2, 3, "second"}, seconds(5));
    root.join();
    ASSERT_EQ(peers.size(), 3U);
    EXPECT_EQ(peers[1].host, "first");
    EXPECT_EQ(peers[2].host, "second");
    first->send({FrameType::ended});
    std::vector<Frame> said;
    for (int i = 0; i < 5000 && said.empty(); ++i) {
      peers[1].socket->receive(said);
      std::this_thread::sleep_for(milliseconds(1));
    }
    ASSERT_EQ(said.size(), 1U);
    EXPECT_EQ(said[0].type, FrameType::ended);
  }
}

TEST(SocketControl, ALimitOfOpenFilesIsNamed) {
  Rendezvous place;
  const std::unique_ptr<FrameSocket> waits = hasty_connection(place, 1);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = 1;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  std::string said;
  try {
    place.receive(2, seconds(2));
  } catch (const Error& error) {
    said = error.what();
  }
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_NE(said.find("rank 0 cannot take the connections of 2 ranks: Too many open files"), std::string::npos) << said;
}

}  // namespace
}  // namespace quire
