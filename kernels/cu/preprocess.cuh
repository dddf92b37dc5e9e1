// What kernels/src/cuda/preprocess writes into memory for preprocess.cu, word by word.
//
// A picture is resampled along axis u first, then along v. u are the upright picture's columns, or its rows where the
// vertical pass comes first; turning and pass order together are one of the eight ways in which stored columns and rows
// (x, y) become (u, v).
#pragma once
#include "types.cuh"

// Same for all pictures of a launch.
struct Settings {
  float factor[3];  // value = fma(sample, factor, shift), a channel of the network's input each
  float shift[3];
  float border[3];  // value around a letterboxed picture
  int width;        // of the network's input
  int height;
  int reversed;  // blue first
  u32 resident;  // thread blocks that run at the same time, about
  // Numbers that instructions want in registers. Were they known to the compiler, it would put them there each time.
  u32 f16_bytes;  // 0x6564: upper bytes of 1024 + x and of 1280 + x in binary16, x from 0 to 255
  u32 half;       // 2097152: what sums begin with so that they are rounded
  u32 minus_f16;  // 0x9b009b00: what makes x of the bits of 1280 + x, twice
};

enum Format { kRgb, kGray, kPlanar, kNv12 };

struct Picture {
  u64 plane[3];
  u64 across;  // table of the first pass: its Blocks, then weights
  u64 down;    // table of the second pass
  u64 image;   // first element of its place in the output
  u64 first;   // element of its first output there
  u32 pitch[3];
  int width;
  int height;
  int chroma_width;
  int chroma_height;
  int format;
  int shift_x;  // log2 of luma columns and rows a chroma sample
  int shift_y;
  int smooth;          // chroma is interpolated along rows
  u32 near_weight;     // where chroma is not: of the nearer and the next chroma row; they add up to 256
  u32 far_weight;
  u32 row_bias[2];     // added to the sums of even and odd rows, twice 16 bits
  int swap;            // (x, y) is (v, u)
  int flip_x;          // x counts from the far end
  int flip_y;
  int size[2];     // outputs along u and v
  int step[2];     // elements from output to output along u and v
  int columns[2];  // of the output, between which the picture lies
  int line;        // bytes of a row of samples in shared memory
  int chunk;       // columns that are in shared memory at a time
  int parts;       // warps that share the rows of a strip between them: 1, 2 or 4
  int unused;
};

// Inputs of 16 neighbouring outputs of an axis.
struct Block {
  int start;   // first input, a multiple of 4 for the first pass
  int extent;  // inputs
  int steps;   // of 32 inputs
  int first;   // where the weights of the first step are: 16 bytes of the table before them
};

// Weights are for each step three digits of radix 256, each as the fragments of a matrix of 16 outputs by 32 inputs, 16
// bytes a lane. The second pass takes its inputs as the first one leaves them in the lanes: byte i of the word of inputs
// 4 t to 4 t + 3 is row 2 t + i % 2 + 8 (i / 2), and rows from 16 on likewise.

// A rectangle of samples: columns u, rows v.
struct Window {
  int u, v;
  int columns, rows;
};

// Work of a thread block: outputs of 16 `count` along u from block `u` on, and of block `v` along v; or border.
struct Item {
  int picture;
  int count;    // 0: whole rows of border, -1: the left part of rows, -2: the right part
  int u;        // first row, for a border
  int v;        // rows, for a border
  int left;     // first source column that is read, a multiple of 16
  int columns;  // from there on
  int top;      // first source row
  int rows;     // from there on
  int step;     // `first` of block `v` of the table `down`
  // Where a thread block is, in its copy; zero at first.
  int strip;
  int chunk;  // column of it, from `left` on
  int unused;
  Window window;  // what of the source is in shared memory; the first one at first
};
