// The machine that runs kernels as nvcc compiles them, by kernels that are written here.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>

#include "tests/support/ptx/machine.h"
#include "tests/support/temporary_directory.h"

namespace quire::ptx {
namespace {

constexpr size_t kWords = 4;  // of memory for each thread

const test::TemporaryDirectory g_folder;  // removed by the process that outlives those that die

// Runs a block. The kernel finds its thread's number in %r0 and the address of its words in %rd0.
std::vector<uint32_t> run(const std::string& body, unsigned threads = kLanes, const std::string& before = "",
                          size_t shared_bytes = 0) {
  const std::string file = g_folder.path() / "kernel.ptx";
  std::ofstream(file)
      << ".version 8.0\n.target sm_90\n.address_size 64\n"
      << before << "\n.visible .entry kernel(\n.param .u64 to\n)\n{\n"
      << ".reg .pred %p<8>;\n.reg .b16 %h<8>;\n.reg .b32 %r<32>;\n.reg .b64 %rd<8>;\n.reg .f32 %f<8>;\n"
      << ".reg .f64 %d<8>;\nld.param.u64 %rd0, [to];\nmov.u32 %r0, %tid.x;\nmul.wide.u32 %rd1, %r0, 16;\n"
      << "add.s64 %rd0, %rd0, %rd1;\n"
      << body << "\nret;\n}\n";
  const std::unique_ptr<Kernel> kernel = read_kernel(file, "kernel");
  std::vector<uint32_t> words(threads * kWords, 0);
  const uint32_t* const to = words.data();
  std::memcpy(kernel->parameter_memory.get(), &to, sizeof to);
  run_grid(*kernel, {1, 1, 1}, {threads, 1, 1}, shared_bytes);
  return words;
}

// Returns the word that the first thread stores after one instruction that makes %r1.
uint32_t result(const std::string& instructions) {
  return run(instructions + "\nst.global.u32 [%rd0], %r1;")[0];
}
float real(const std::string& instructions) {
  return std::bit_cast<float>(run(instructions + "\nst.global.f32 [%rd0], %f1;")[0]);
}

TEST(Ptx, IntegersAtTheirEnds) {
  EXPECT_EQ(result("div.u32 %r1, 7, 0;"), ~0U);
  EXPECT_EQ(result("div.s32 %r1, -7, 2;"), static_cast<uint32_t>(-3));
  EXPECT_EQ(result("rem.s32 %r1, -7, 2;"), static_cast<uint32_t>(-1));
  EXPECT_EQ(result("shl.b32 %r1, 1, 32;"), 0U);
  EXPECT_EQ(result("shr.s32 %r1, -4, 40;"), ~0U);
  EXPECT_EQ(result("shr.u32 %r1, 0x80000000, 31;"), 1U);
  EXPECT_EQ(result("mul.hi.s32 %r1, -2, 0x40000000;"), ~0U);
  EXPECT_EQ(result("mul.hi.u32 %r1, 0xfffffffe, 0x40000000;"), 0x3fffffffU);
  EXPECT_EQ(result("bfind.shiftamt.u32 %r1, 0;"), ~0U);
  EXPECT_EQ(result("bfind.shiftamt.u32 %r1, 0x00800000;"), 8U);
  EXPECT_EQ(result("bmsk.clamp.b32 %r1, 4, 8;"), 0xff0U);
  EXPECT_EQ(result("prmt.b32 %r1, 0x33221100, 0x77665544, 0x7610;"), 0x77661100U);
  EXPECT_EQ(result("prmt.b32 %r1, 0x80, 0, 0x1118;"), 0xffU);  // a sign spread over a byte
  EXPECT_EQ(result("brev.b32 %r1, 6;"), 0x60000000U);
  EXPECT_EQ(result("add.cc.u32 %r2, 0xffffffff, 1; addc.u32 %r1, 5, 0;"), 6U);
  EXPECT_EQ(result("sub.cc.u32 %r2, 0, 1; subc.u32 %r1, 5, 0;"), 4U);
  EXPECT_EQ(result("mad.lo.cc.u32 %r2, 0x10000, 0xffff, 0x10000; madc.hi.u32 %r1, 0x10000, 0x10000, 3;"), 5U);
  EXPECT_EQ(result("mov.u64 %rd2, 0; bfi.b64 %rd3, 5, %rd2, 32, 32; shr.u64 %rd4, %rd3, 32; cvt.u32.u64 %r1, %rd4;"),
            5U);
  EXPECT_EQ(result("mov.u64 %rd2, -3; cvt.s64.s32 %rd3, %rd2; cvt.u32.u64 %r1, %rd3;"), static_cast<uint32_t>(-3));
}

TEST(Ptx, NumbersAtTheirEnds) {
  // 0f7fc00000 is not a number, 0f00000001 the smallest one.
  EXPECT_EQ(real("max.f32 %f1, 0f7fc00000, 0f3f800000;"), 1.0F);
  EXPECT_EQ(real("min.f32 %f1, 0f3f800000, 0f7fc00000;"), 1.0F);
  EXPECT_EQ(real("cvt.sat.f32.f32 %f1, 0f7fc00000;"), 0.0F);
  EXPECT_EQ(real("cvt.sat.f32.f32 %f1, 0f40000000;"), 1.0F);
  EXPECT_EQ(real("copysign.f32 %f1, 0fbf800000, 0f40000000;"), -2.0F);
  EXPECT_EQ(real("ex2.approx.ftz.f32 %f1, 0fc3000000;"), 0.0F);  // 2^-128 is none of the normal numbers
  EXPECT_EQ(real("ex2.approx.f32 %f1, 0fc3000000;"), std::ldexp(1.0F, -128));
  // Rounded down, of 1 + 2^-30 as of 1 - 2^-30.
  EXPECT_EQ(real("fma.rm.f32 %f1, 0f30800000, 0f3f800000, 0f3f800000;"), 1.0F);
  EXPECT_EQ(real("fma.rm.f32 %f1, 0fb0800000, 0f3f800000, 0f3f800000;"), std::nextafter(1.0F, 0.0F));
  EXPECT_EQ(result("mov.f64 %d1, 0d41f0000000000000; cvt.rzi.s32.f64 %r1, %d1;"), 0x7fffffffU);
  EXPECT_EQ(result("mov.f64 %d1, 0d4004000000000000; cvt.rni.s32.f64 %r1, %d1;"), 2U);  // 2.5 to an even one
  // The first operand is the upper half.
  EXPECT_EQ(result("cvt.rn.bf16x2.f32 %r1, 0f3f800000, 0f40000000;"), 0x3f804000U);
  EXPECT_EQ(result("setp.leu.f32 %p1, 0f7fc00000, 0f00000000; selp.u32 %r1, 1, 0, %p1;"), 1U);
  EXPECT_EQ(result("setp.le.f32 %p1, 0f7fc00000, 0f00000000; selp.u32 %r1, 1, 0, %p1;"), 0U);
  EXPECT_EQ(result("setp.ne.f32 %p1, 0f7fc00000, 0f00000000; selp.u32 %r1, 1, 0, %p1;"), 0U);
}

TEST(Ptx, MemoryOfAllSizes) {
  const std::vector<uint32_t> words = run(R"(
    st.global.v4.u32 [%rd0], {1, 2, 0xfffe8000, 4};
    ld.global.s8 %r1, [%rd0+9];
    ld.global.u16 %h1, [%rd0+10];
    cvt.u32.u16 %r2, %h1;
    ld.global.v2.u32 {%r3, %r4}, [%rd0];
    add.s32 %r3, %r3, %r4;
    st.global.v4.u32 [%rd0], {%r1, %r2, %r3, %r0};
  )");
  for (uint32_t t = 0; t < kLanes; ++t) {
    EXPECT_EQ(words[kWords * t], 0xffffff80U);
    EXPECT_EQ(words[kWords * t + 1], 0xfffeU);
    EXPECT_EQ(words[kWords * t + 2], 3U);
    EXPECT_EQ(words[kWords * t + 3], t);
  }
}

// Lanes leave a loop one by one, half of them over a block that stands before it, and meet at a warp operation.
TEST(Ptx, LanesThatPartMeetAgain) {
  const std::vector<uint32_t> words = run(R"(
    mov.u32 %r1, 0;
    and.b32 %r4, %r0, 1;
    setp.eq.s32 %p2, %r4, 1;
    bra loop;
  odd:
    add.s32 %r1, %r1, 100;
    bra after;
  loop:
    add.s32 %r1, %r1, 1;
    setp.le.u32 %p1, %r1, %r0;
    @%p1 bra loop;
    @%p2 bra odd;
  after:
    shfl.sync.bfly.b32 %r2|%p3, %r1, 31, 31, -1;
    vote.sync.ballot.b32 %r3, %p2, -1;
    st.global.v4.u32 [%rd0], {%r1, %r2, %r3, 0};
  )");
  const auto own = [](uint32_t t) { return t + 1 + (t % 2 == 1 ? 100 : 0); };
  for (uint32_t t = 0; t < kLanes; ++t) {
    EXPECT_EQ(words[kWords * t], own(t));
    EXPECT_EQ(words[kWords * t + 1], own(31 - t));
    EXPECT_EQ(words[kWords * t + 2], 0xaaaaaaaaU);
  }
}

TEST(Ptx, FunctionsAreCalledWithLocalMemory) {
  const std::vector<uint32_t> words = run(R"(
    { .param .b32 given; st.param.b32 [given+0], %r0;
      .param .b32 taken;
      call.uni (taken), twice, (given);
      ld.param.b32 %r1, [taken+0]; }
    st.global.u32 [%rd0], %r1;
  )",
                                          kLanes, R"(
    .func (.param .b32 back) twice(.param .b32 x)
    {
      .reg .b32 %r<4>;
      .reg .pred %p<2>;
      ld.param.b32 %r1, [x];
      setp.lt.u32 %p1, %r1, 16;
      @%p1 bra small;
      add.s32 %r1, %r1, %r1;
    small:
      st.param.b32 [back], %r1;
      ret;
    })");
  for (uint32_t t = 0; t < kLanes; ++t) EXPECT_EQ(words[kWords * t], t < 16 ? t : 2 * t);
}

constexpr const char* kShared = ".extern .shared .align 16 .b8 memory[];";
// %r10: the thread's own word in shared memory, %r11: that of the thread 32 further on, or before.
constexpr const char* kPlaces = R"(
    shl.b32 %r1, %r0, 2; mov.u32 %r2, memory; add.s32 %r10, %r2, %r1;
    xor.b32 %r3, %r1, 128; add.s32 %r11, %r2, %r3;
    xor.b32 %r4, %r1, 4; add.s32 %r12, %r2, %r4;
)";

std::vector<uint32_t> run_shared(const std::string& body) {
  return run(kPlaces + body, 2 * kLanes, kShared, 2 * kLanes * sizeof(uint32_t));
}

TEST(Ptx, BarriersOrderThreads) {
  const std::vector<uint32_t> words = run_shared(R"(
    st.shared.u32 [%r10], %r0;
    bar.sync 0;
    ld.shared.u32 %r5, [%r11];
    st.global.u32 [%rd0], %r5;
  )");
  for (uint32_t t = 0; t < 2 * kLanes; ++t) EXPECT_EQ(words[kWords * t], t ^ 32U);
  const std::vector<uint32_t> of_warp = run_shared(R"(
    st.shared.u32 [%r10], %r0;
    bar.warp.sync -1;
    ld.shared.u32 %r5, [%r12];
    st.global.u32 [%rd0], %r5;
  )");
  for (uint32_t t = 0; t < 2 * kLanes; ++t) EXPECT_EQ(of_warp[kWords * t], t ^ 1U);
}

TEST(PtxDeathTest, ThreadsThatNothingOrdersAreFound) {
  EXPECT_DEATH(run_shared("st.shared.u32 [%r10], %r0; ld.shared.u32 %r5, [%r11];"), "without a barrier between");
  EXPECT_DEATH(run_shared("st.shared.u32 [%r10], %r0; ld.shared.u32 %r5, [%r12];"), "without a barrier between");
  EXPECT_DEATH(run_shared("setp.lt.u32 %p1, %r0, 32; @%p1 ld.shared.u32 %r5, [%r11]; @!%p1 st.shared.u32 [%r10], %r0;"),
               "thread 32 writes what thread 0 has read, without a barrier between");
  EXPECT_DEATH(run_shared("st.shared.u32 [%r10], %r0; bar.warp.sync -1; st.shared.u32 [%r11], %r0;"),
               "writes what thread .* has written");
}

// No array lies better than it is declared to.
TEST(PtxDeathTest, AlignmentOfSharedMemoryIsWhatIsDeclared) {
  const auto store = [](const std::string& alignment, const std::string& instruction) {
    run("mov.u32 %r2, array; " + instruction, kLanes, ".shared .align " + alignment + " .b8 array[64];");
  };
  store("16", "st.shared.v4.u32 [%r2], {1, 1, 1, 1};");
  EXPECT_DEATH(store("8", "st.shared.v4.u32 [%r2], {1, 1, 1, 1};"), "a misaligned address in shared memory");
  EXPECT_DEATH(store("4", "st.shared.v2.u32 [%r2], {1, 1};"), "a misaligned address in shared memory");
  EXPECT_EQ(run("mov.u32 %r1, memory; and.b32 %r1, %r1, 1023; st.global.u32 [%rd0], %r1;", kLanes, kShared, 64)[0], 16);
}

TEST(PtxDeathTest, RulesOfTheIsaAreKept) {
  EXPECT_DEATH(run("ld.global.u32 %r1, [%rd0+2];"), "a misaligned address: .*kernel.ptx:19: warp 0");
  EXPECT_DEATH(run("ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd0+8];"), "a misaligned address");
  EXPECT_DEATH(run_shared("ld.shared.u32 %r5, [%r10+132];"), "an address outside of shared memory");
  EXPECT_DEATH(run("setp.lt.u32 %p1, %r0, 4; @%p1 ret; shfl.sync.idx.b32 %r1|%p2, %r0, 0, 31, -1;"),
               "a thread has returned before a warp operation");
  EXPECT_DEATH(run("setp.lt.u32 %p1, %r0, 4; @%p1 bra out; bar.warp.sync -1; out: bar.warp.sync -1;"),
               "lanes wait for others that do not come");
  EXPECT_DEATH(run("setp.lt.u32 %p1, %r0, 32; @%p1 bra out; bar.sync 0; out: bar.sync 0;", 2 * kLanes),
               "warps wait at different barriers");
  EXPECT_DEATH(run("setp.lt.u32 %p1, %r0, 32; @%p1 ret; bar.sync 0;", 2 * kLanes),
               "a warp has returned before a barrier");
  EXPECT_DEATH(
      run_shared("shl.b32 %r6, %r0, 4; and.b32 %r6, %r6, 127; add.s32 %r6, %r6, %r2; mov.u32 %r5, 16; "
                 "setp.gt.u32 %p1, %r0, 7; @%p1 bra out; cp.async.cg.shared.global [%r6], [%rd0], 16, %r5; out:"),
      "a thread returns before its copies have ended");
}

TEST(Ptx, WhatIsNotKnownIsRefused) {
  EXPECT_THROW(run("frobnicate.u32 %r1, %r2;"), std::runtime_error);
  EXPECT_THROW(run("add.u32 %r1, %r2, %nothing;"), std::runtime_error);
  EXPECT_THROW(run("add.u64 %rd1, %rd2, %r1;"), std::runtime_error);
  EXPECT_THROW(run("bra nowhere;"), std::runtime_error);
}

}  // namespace
}  // namespace quire::ptx
