// Warps, blocks, and who uses shared memory.
#include "tests/support/ptx/machine.h"

#include <algorithm>
#include <bit>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace quire::ptx {

namespace {

int thread_of(const Warp& warp, int lane) {
  return warp.number * kLanes + lane;
}

// Lanes at the lowest program counter of those that can go on, with all that stand there; sets how far they may run
// before they meet others.
uint32_t choose(const Warp& warp, int32_t& at, int32_t& limit) {
  at = INT32_MAX;
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((warp.alive & ~warp.waits) >> lane & 1) at = std::min(at, warp.at[lane]);
  }
  limit = INT32_MAX;
  uint32_t lanes = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((warp.alive >> lane & 1) == 0) continue;
    if (warp.at[lane] == at) lanes |= 1U << lane;
    if (warp.at[lane] > at) limit = std::min(limit, warp.at[lane]);
  }
  return lanes;
}

void set_at(Warp& warp, uint32_t lanes, int32_t at) {
  for (int lane = 0; lane < kLanes; ++lane) {
    if (lanes >> lane & 1) warp.at[lane] = at;
  }
}

// Lanes that an instruction of a whole warp names in its first operand, if it does.
uint32_t named_by(Warp& warp, const Instruction& i, uint32_t lanes) {
  if (i.run != shuffle && i.run != vote && i.run != sync_warp) return kAll;
  const uint32_t* const masks = lanes_of<uint32_t>(warp, i.operands[0]);
  const uint32_t mask = masks[std::countr_zero(lanes)];
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((lanes >> lane & 1) != 0 && masks[lane] != mask) give_up(warp, "lanes name different lanes");
  }
  if ((lanes & ~mask) != 0) give_up(warp, "a lane does not name itself");
  return mask;
}

}  // namespace

void give_up(const Warp& warp, const std::string& what) {
  const Block& block = *warp.block;
  std::fprintf(stderr, "ptx: %s: %s:%d: warp %d of block of %s\n", what.c_str(), block.kernel->file.c_str(),
               warp.current == nullptr ? 0 : warp.current->line, warp.number, block.kernel->name.c_str());
  std::abort();
}

void run_warp(Warp& warp) {
  const std::vector<Instruction>& code = warp.block->kernel->code;
  while (warp.alive != 0) {
    int32_t at = 0;
    int32_t limit = 0;
    const uint32_t lanes = choose(warp, at, limit);
    if (lanes == 0) give_up(warp, "lanes wait for others that do not come");
    warp.waits &= ~lanes;
    for (bool together = true; together;) {
      const Instruction& i = code[static_cast<size_t>(at)];
      warp.current = &i;
      uint32_t active = lanes;
      if (i.guard >= 0) active &= i.guard_negated ? ~predicate(warp, i.guard) : predicate(warp, i.guard);
      switch (i.flow) {
        case Flow::next:
          if (active != 0) i.run(warp, i, active);
          ++at;
          break;
        case Flow::branch:
          if (active == lanes) {
            at = i.target;
            together = lanes == warp.alive;  // others may stand behind the target
          } else if (active == 0) {
            ++at;
          } else {
            set_at(warp, active, i.target);
            set_at(warp, lanes & ~active, at + 1);
            together = false;
            continue;  // program counters are set
          }
          break;
        case Flow::end:
          if (!warp.copies.empty()) give_up(warp, "a thread returns before its copies have ended");
          warp.alive &= ~active;
          set_at(warp, lanes & ~active, at + 1);
          together = false;
          continue;
        case Flow::warp:
        case Flow::block: {
          if (active != lanes) give_up(warp, "a warp operation under a condition");
          const uint32_t named = i.flow == Flow::block ? kAll : named_by(warp, i, lanes);
          if (named != lanes) {
            if ((named & ~warp.alive) != 0) give_up(warp, "a thread has returned before a warp operation");
            warp.waits |= lanes;
            set_at(warp, lanes, at);
            together = false;
            continue;
          }
          if (i.flow == Flow::block) {
            set_at(warp, lanes, at);
            return;
          }
          i.run(warp, i, lanes);
          ++at;
          break;
        }
      }
      if (at >= limit) together = false;
      if (!together) set_at(warp, lanes, at);
    }
  }
}

unsigned char* shared(Warp& warp, uint32_t address, size_t bytes) {
  Block& block = *warp.block;
  if (address < kSharedBegin || address - kSharedBegin + bytes > block.shared_bytes) {
    give_up(warp, "an address outside of shared memory");
  }
  return block.shared.data() + (address - kSharedBegin);
}

namespace {

Word& word_of(Block& block, const unsigned char* at) {
  return block.words[static_cast<size_t>(at - block.shared.data()) / 4];
}

bool unordered(const Warp& warp, int thread, int other, int64_t barriers, int64_t synced) {
  if (other < 0 || other == thread || barriers != warp.block->barriers) return false;
  return other / kLanes != warp.number || synced == warp.synchronized;
}

}  // namespace

// Bytes of a word are not told apart, so a word that two threads write in parts is left alone.
void note_read(Warp& warp, int lane, const unsigned char* at, size_t bytes) {
  Block& block = *warp.block;
  const int thread = thread_of(warp, lane);
  for (size_t n = 0; n < bytes; n += 4) {
    Word& word = word_of(block, at + n);
    if (unordered(warp, thread, word.writer, word.written, word.writer_synced) && !word.in_parts) {
      give_up(warp, "thread " + std::to_string(thread) + " reads what thread " + std::to_string(word.writer) +
                        " has written in line " + std::to_string(word.write_line) + " without a barrier between");
    }
    if (word.reader >= 0 && word.read == block.barriers && word.reader / kLanes != warp.number) {
      word.other_reader = word.reader;
      word.other_read = word.read;
    }
    word.reader = thread;
    word.read = block.barriers;
    word.reader_synced = warp.synchronized;
  }
}

void note_write(Warp& warp, int lane, const unsigned char* at, size_t bytes) {
  Block& block = *warp.block;
  const int thread = thread_of(warp, lane);
  for (size_t n = 0; n < bytes; n += 4) {
    Word& word = word_of(block, at + n);
    const bool again = unordered(warp, thread, word.writer, word.written, word.writer_synced);
    word.in_parts = bytes < 4 && (word.in_parts || again);
    const bool read = unordered(warp, thread, word.reader, word.read, word.reader_synced) ||
                      unordered(warp, thread, word.other_reader, word.other_read, -1);
    if (read && bytes >= 4) {
      give_up(warp, "thread " + std::to_string(thread) + " writes what thread " + std::to_string(word.reader) +
                        " has read, without a barrier between");
    }
    if (again && bytes >= 4 && !(word.writer / kLanes == warp.number && word.write_line == warp.current->line)) {
      give_up(warp, "thread " + std::to_string(thread) + " writes what thread " + std::to_string(word.writer) +
                        " has written in line " + std::to_string(word.write_line) + ", without a barrier between");
    }
    word.writer = thread;
    word.written = block.barriers;
    word.writer_synced = warp.synchronized;
    word.write_line = warp.current->line;
  }
}

void run_block(Block& block, const uint32_t (&index)[3]) {
  const Kernel& kernel = *block.kernel;
  std::memset(block.shared.data(), 0xff, block.shared.size());
  std::fill(block.words.begin(), block.words.end(), Word{});
  block.barriers = 0;
  for (Warp& warp : block.warps) {
    warp.alive = kAll;
    warp.waits = 0;
    warp.synchronized = 0;
    std::fill(std::begin(warp.at), std::end(warp.at), 0);
    for (const SpecialRegister& special : kernel.specials) {
      for (int lane = 0; lane < kLanes; ++lane) {
        const auto thread = static_cast<uint32_t>(thread_of(warp, lane));
        uint32_t value = 0;
        switch (special.what) {
          case Special::tid_x:
            value = thread % block.sizes[0];
            break;
          case Special::tid_y:
            value = thread / block.sizes[0] % block.sizes[1];
            break;
          case Special::tid_z:
            value = thread / (block.sizes[0] * block.sizes[1]);
            break;
          case Special::ctaid_x:
          case Special::ctaid_y:
          case Special::ctaid_z:
            value = index[static_cast<int>(special.what) - static_cast<int>(Special::ctaid_x)];
            break;
          case Special::laneid:
            value = static_cast<uint32_t>(lane);
            break;
          case Special::lanemask_le:
            value = kAll >> (kLanes - 1 - lane);
            break;
          case Special::local:
            lanes_of<uint64_t>(warp, special.place)[lane] =
                reinterpret_cast<uint64_t>(block.local.data() + thread * kernel.local_bytes) + special.offset;
            continue;
        }
        lanes_of<uint32_t>(warp, special.place)[lane] = value;
      }
    }
  }
  for (;;) {
    size_t ended = 0;
    const Instruction* barrier = nullptr;
    for (Warp& warp : block.warps) {
      if (warp.alive != 0) run_warp(warp);
      if (warp.alive == 0) {
        ++ended;
        continue;
      }
      if (barrier != nullptr && warp.current != barrier) give_up(warp, "warps wait at different barriers");
      barrier = warp.current;
    }
    if (ended == block.warps.size()) return;
    for (Warp& warp : block.warps) {
      if (warp.alive == 0) continue;
      if (ended > 0) give_up(warp, "a warp has returned before a barrier that others reach");
      for (int32_t& at : warp.at) ++at;
      ++warp.synchronized;
    }
    ++block.barriers;
  }
}

void run_grid(const Kernel& kernel, const uint32_t (&grid)[3], const uint32_t (&threads)[3], size_t dynamic_bytes) {
  Block block;
  block.kernel = &kernel;
  std::copy(std::begin(threads), std::end(threads), block.sizes);
  std::copy(std::begin(grid), std::end(grid), block.sizes + 3);
  const size_t count = size_t{threads[0]} * threads[1] * threads[2];
  if (kernel.max_threads != 0 && count > kernel.max_threads) {
    std::fprintf(stderr, "ptx: %zu threads, more than the %zu of __launch_bounds__: %s\n", count, kernel.max_threads,
                 kernel.name.c_str());
    std::abort();
  }
  block.shared_bytes =
      static_cast<uint32_t>(dynamic_bytes == 0 ? kernel.shared_bytes : kernel.dynamic_begin() + dynamic_bytes);
  // Aligned as an address of the window is.
  block.shared.resize(block.shared_bytes + 16);
  block.words.resize(block.shared.size() / 4 + 1);
  block.local.resize(kernel.local_bytes * count);
  block.warps.resize(count / kLanes);
  int number = 0;
  for (Warp& warp : block.warps) {
    warp.block = &block;
    warp.number = number++;
    warp.registers.assign(kernel.register_bytes + 64, 0);
    for (const Constant& constant : kernel.constants) {
      for (int lane = 0; lane < kLanes; ++lane) {
        std::memcpy(warp.registers.data() + constant.place + constant.bytes * lane, &constant.value,
                    static_cast<size_t>(constant.bytes));
      }
    }
    for (const Constant& size : kernel.sizes) {
      std::fill_n(lanes_of<uint32_t>(warp, size.place), kLanes, block.sizes[size.value]);
    }
  }
  for (uint32_t z = 0; z < grid[2]; ++z) {
    for (uint32_t y = 0; y < grid[1]; ++y) {
      for (uint32_t x = 0; x < grid[0]; ++x) run_block(block, {x, y, z});
    }
  }
}

}  // namespace quire::ptx
