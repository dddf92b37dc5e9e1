// The collectives of a warp, with the fragment layouts of the PTX ISA's chapters on mma and ldmatrix.
#include <cstring>

#include "device/half.hpp"
#include "machine/block.hpp"

namespace emulator {
namespace {

constexpr unsigned kAllLanes = ~0u;

// Compiled for wider vectors too, and chosen when the library is loaded.
#if defined(__x86_64__)
#define WIDE __attribute__((target_clones("avx2", "default")))
#else
#define WIDE
#endif

float from_bits(unsigned bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

void shuffle(unsigned lanes, void* const (&operands)[kWarp]) {
  unsigned long long values[kWarp];
  // The value of a lane that does not take part is undefined: all ones, a NaN.
  std::memset(values, 0xff, sizeof values);
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    if (lanes >> lane & 1) values[lane] = static_cast<ShuffleOperand*>(operands[lane])->value;
  }
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    if (!(lanes >> lane & 1)) continue;
    auto& operand = *static_cast<ShuffleOperand*>(operands[lane]);
    operand.value = values[operand.source % kWarp];
  }
}

void ballot(unsigned lanes, void* const (&operands)[kWarp]) {
  unsigned result = 0;
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    if (lanes >> lane & 1) result |= static_cast<BallotOperand*>(operands[lane])->predicate << lane;
  }
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    if (lanes >> lane & 1) static_cast<BallotOperand*>(operands[lane])->result = result;
  }
}

void ldmatrix(BlockRunner& block, bool transposed, void* const (&operands)[kWarp]) {
  unsigned short matrices[4][8][8];
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    const unsigned row = static_cast<LdmatrixOperand*>(operands[lane])->row;
    std::memcpy(matrices[lane / 8][lane % 8], block.smem_pointer(row, 16, "ldmatrix"), 16);
  }
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    auto& operand = *static_cast<LdmatrixOperand*>(operands[lane]);
    const unsigned row = lane / 4, column = lane % 4 * 2;
    for (unsigned m = 0; m < 4; ++m) {
      const unsigned lo = transposed ? matrices[m][column][row] : matrices[m][row][column];
      const unsigned hi = transposed ? matrices[m][column + 1][row] : matrices[m][row][column + 1];
      operand.matrix[m] = lo | hi << 16;
    }
  }
}

struct F16 {
  static float lo(unsigned x) { return f16_to_f32(static_cast<unsigned short>(x)); }
  static float hi(unsigned x) { return f16_to_f32(static_cast<unsigned short>(x >> 16)); }
};
struct Bf16 {
  static float lo(unsigned x) { return from_bits(x << 16); }
  static float hi(unsigned x) { return from_bits(x & 0xffff0000u); }
};

template <unsigned Depth>
struct Tile {
  float a[16][Depth];
  float b[Depth][8];
};

// m16n8k16: a register holds two neighbours along k, the lower index in the lower half.
template <class T>
void unpack(Tile<16>& tile, void* const (&operands)[kWarp]) {
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    const auto& operand = *static_cast<MmaOperand*>(operands[lane]);
    const unsigned group = lane / 4, pair = lane % 4 * 2;
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned row = group + i % 2 * 8, k = pair + i / 2 * 8;
      tile.a[row][k] = T::lo(operand.a[i]);
      tile.a[row][k + 1] = T::hi(operand.a[i]);
    }
    for (unsigned i = 0; i < 2; ++i) {
      tile.b[pair + i * 8][group] = T::lo(operand.b[i]);
      tile.b[pair + i * 8 + 1][group] = T::hi(operand.b[i]);
    }
  }
}

// m16n8k8: one value a register, of which the tensor cores do not see the low 13 bits.
void unpack_tf32(Tile<8>& tile, void* const (&operands)[kWarp]) {
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    const auto& operand = *static_cast<MmaOperand*>(operands[lane]);
    const unsigned group = lane / 4, k = lane % 4;
    for (unsigned i = 0; i < 4; ++i) tile.a[group + i % 2 * 8][k + i / 2 * 4] = from_bits(operand.a[i] & ~0x1fffu);
    for (unsigned i = 0; i < 2; ++i) tile.b[k + i * 4][group] = from_bits(operand.b[i] & ~0x1fffu);
  }
}

// m16n8k32: four neighbours along k in a register, signed in a, unsigned in b. Their sums fit fp32's 24 bits.
void unpack_s8_u8(Tile<32>& tile, void* const (&operands)[kWarp]) {
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    const auto& operand = *static_cast<MmaOperand*>(operands[lane]);
    const unsigned group = lane / 4, first = lane % 4 * 4;
    for (unsigned byte = 0; byte < 4; ++byte) {
      for (unsigned i = 0; i < 4; ++i) {
        tile.a[group + i % 2 * 8][first + i / 2 * 16 + byte] = static_cast<signed char>(operand.a[i] >> (8 * byte));
      }
      for (unsigned i = 0; i < 2; ++i) tile.b[first + i * 16 + byte][group] = static_cast<unsigned char>(operand.b[i] >> (8 * byte));
    }
  }
}

// sums += a b. Products are exact for all operand types, so only the order of the sums is this machine's own choice, and
// the same on every CPU.
template <unsigned Depth>
WIDE void multiply(const Tile<Depth>& tile, float (&sums)[16][8]) {
  for (unsigned row = 0; row < 16; ++row) {
    float own[8];
    std::memcpy(own, sums[row], sizeof own);
    for (unsigned k = 0; k < Depth; ++k) {
      for (unsigned column = 0; column < 8; ++column) own[column] += tile.a[row][k] * tile.b[k][column];
    }
    std::memcpy(sums[row], own, sizeof own);
  }
}

// Element i of a lane's part of the sums.
float& part(float (&sums)[16][8], unsigned lane, unsigned i) { return sums[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2]; }

template <unsigned Depth>
void multiply_floats(const Tile<Depth>& tile, void* const (&operands)[kWarp]) {
  float sums[16][8];
  const auto own = [&](unsigned lane) { return static_cast<float*>(static_cast<MmaOperand*>(operands[lane])->d); };
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    for (unsigned i = 0; i < 4; ++i) part(sums, lane, i) = own(lane)[i];
  }
  multiply(tile, sums);
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    for (unsigned i = 0; i < 4; ++i) own(lane)[i] = part(sums, lane, i);
  }
}

void multiply_bytes(const Tile<32>& tile, void* const (&operands)[kWarp]) {
  float sums[16][8] = {};
  multiply(tile, sums);
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    auto* const own = static_cast<unsigned*>(static_cast<MmaOperand*>(operands[lane])->d);
    for (unsigned i = 0; i < 4; ++i) own[i] += static_cast<unsigned>(static_cast<int>(part(sums, lane, i)));
  }
}

}  // namespace

void execute_collective(BlockRunner& block, int kind, unsigned lanes, void* const (&operands)[kWarp]) {
  if (kind >= kLdmatrix && lanes != kAllLanes) block.fail("ldmatrix and mma need all 32 lanes of a warp");
  Tile<16> half;
  Tile<8> single;
  Tile<32> bytes;
  switch (kind) {
    case kSyncWarp: return;
    case kShuffle: return shuffle(lanes, operands);
    case kBallot: return ballot(lanes, operands);
    case kLdmatrix: return ldmatrix(block, false, operands);
    case kLdmatrixTrans: return ldmatrix(block, true, operands);
    case kMmaF16: unpack<F16>(half, operands); return multiply_floats(half, operands);
    case kMmaBf16: unpack<Bf16>(half, operands); return multiply_floats(half, operands);
    case kMmaTf32: unpack_tf32(single, operands); return multiply_floats(single, operands);
    case kMmaS8U8: unpack_s8_u8(bytes, operands); return multiply_bytes(bytes, operands);
    default: block.fail("an unknown collective");
  }
}

}  // namespace emulator
