// JPEG files into planes as stored, for the stand-in of nvJPEG.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

// Values of nvjpegStatus_t.
enum Status : int {
  SUCCESS = 0,
  INVALID_PARAMETER = 2,
  BAD_JPEG = 3,
  JPEG_NOT_SUPPORTED = 4,
  ALLOCATOR_FAILURE = 5,
  EXECUTION_FAILED = 6,
  ARCH_MISMATCH = 7,
  INTERNAL_ERROR = 8,
  IMPLEMENTATION_NOT_SUPPORTED = 9,
  INCOMPLETE_BITSTREAM = 10,
};

// Values of nvjpegChromaSubsampling_t.
enum Subsampling : int {
  CSS_444 = 0,
  CSS_422 = 1,
  CSS_420 = 2,
  CSS_440 = 3,
  CSS_411 = 4,
  CSS_410 = 5,
  CSS_GRAY = 6,
  CSS_410V = 7,
  CSS_UNKNOWN = -1,
};

struct Plane { unsigned width, height; };

struct Header {
  int components = 0;
  bool progressive = false;
  // The first scan has all components.
  bool one_scan = false;
  Subsampling subsampling = CSS_UNKNOWN;
  // ceil(size * factor / largest factor), as in the standard.
  Plane planes[4] = {};
};

struct Picture {
  Header header;
  // Rows of the plane's width without gaps.
  std::vector<uint8_t> samples[4];
};

Status read_header(const uint8_t* data, size_t length, Header& header);

// The picture whose header was read; a file that libjpeg warns of fails.
Status decode_picture(const uint8_t* data, size_t length, Picture& picture);
