#include "nvjpeg/decode.hpp"

#include <csetjmp>
#include <cstdio>
#include <cstring>

#include <jpeglib.h>
#include <jerror.h>

namespace {

struct Errors {
  jpeg_error_mgr base;
  std::jmp_buf jump;
  Status warned;
};

Errors& errors_of(j_common_ptr info) { return *reinterpret_cast<Errors*>(info->err); }

Status status_of(int message) {
  switch (message) {
    case JERR_INPUT_EOF:
    case JERR_INPUT_EMPTY:
    case JWRN_JPEG_EOF:
      return INCOMPLETE_BITSTREAM;
    case JERR_BAD_PRECISION:
    case JERR_SOF_UNSUPPORTED:
    case JERR_COMPONENT_COUNT:
    case JERR_ARITH_NOTIMPL:
      return JPEG_NOT_SUPPORTED;
    default:
      return BAD_JPEG;
  }
}

[[noreturn]] void fail(j_common_ptr info) { std::longjmp(errors_of(info).jump, 1); }

void remark(j_common_ptr info, int level) {
  if (level < 0 && errors_of(info).warned == SUCCESS) errors_of(info).warned = status_of(info->err->msg_code);
}

Subsampling subsampling_of(const jpeg_decompress_struct& info) {
  if (info.num_components == 1) return CSS_GRAY;
  const jpeg_component_info* c = info.comp_info;
  if (info.num_components != 3 || c[1].h_samp_factor != c[2].h_samp_factor ||
    c[1].v_samp_factor != c[2].v_samp_factor || c[0].h_samp_factor % c[1].h_samp_factor != 0 ||
    c[0].v_samp_factor % c[1].v_samp_factor != 0) {
    return CSS_UNKNOWN;
  }
  switch (10 * (c[0].h_samp_factor / c[1].h_samp_factor) + c[0].v_samp_factor / c[1].v_samp_factor) {
    case 11: return CSS_444;
    case 21: return CSS_422;
    case 22: return CSS_420;
    case 12: return CSS_440;
    case 41: return CSS_411;
    case 42: return CSS_410;
    case 24: return CSS_410V;
    default: return CSS_UNKNOWN;
  }
}

unsigned divided(unsigned size, int factor, int largest) { return (size * factor + largest - 1) / largest; }

void take_header(const jpeg_decompress_struct& info, Header& header) {
  int h = 1, v = 1;
  for (int c = 0; c < info.num_components; ++c) {
    if (info.comp_info[c].h_samp_factor > h) h = info.comp_info[c].h_samp_factor;
    if (info.comp_info[c].v_samp_factor > v) v = info.comp_info[c].v_samp_factor;
  }
  header = Header{};
  header.components = info.num_components;
  header.progressive = info.progressive_mode;
  header.one_scan = info.comps_in_scan == info.num_components;
  header.subsampling = subsampling_of(info);
  for (int c = 0; c < info.num_components && c < 4; ++c) {
    header.planes[c].width = divided(info.image_width, info.comp_info[c].h_samp_factor, h);
    header.planes[c].height = divided(info.image_height, info.comp_info[c].v_samp_factor, v);
  }
}

// One row of MCUs at a time: whole blocks, of which the plane takes what lies inside it. The vectors are the caller's,
// because an error jumps over their destructors.
void read_planes(jpeg_decompress_struct& info, Picture& picture, std::vector<uint8_t>* strips,
                 std::vector<JSAMPROW>* rows) {
  JSAMPARRAY planes[4] = {};
  for (int c = 0; c < info.num_components; ++c) {
    const size_t width = size_t(info.comp_info[c].width_in_blocks) * DCTSIZE;
    const int height = info.comp_info[c].v_samp_factor * DCTSIZE;
    strips[c].assign(width * height, 0);
    rows[c].resize(height);
    for (int y = 0; y < height; ++y) rows[c][y] = &strips[c][y * width];
    planes[c] = rows[c].data();
    const Plane size = picture.header.planes[c];
    picture.samples[c].assign(size_t(size.width) * size.height, 0);
  }
  const unsigned lines = info.max_v_samp_factor * DCTSIZE;
  for (unsigned strip = 0; info.output_scanline < info.output_height; ++strip) {
    jpeg_read_raw_data(&info, planes, lines);
    for (int c = 0; c < info.num_components; ++c) {
      const Plane size = picture.header.planes[c];
      const unsigned height = info.comp_info[c].v_samp_factor * DCTSIZE;
      for (unsigned y = 0; y < height && strip * height + y < size.height; ++y) {
        std::memcpy(&picture.samples[c][size_t(strip * height + y) * size.width], rows[c][y], size.width);
      }
    }
  }
}

Status run(const uint8_t* data, size_t length, Header* header, Picture* picture) {
  if (length == 0) return INCOMPLETE_BITSTREAM;
  std::vector<uint8_t> strips[4];
  std::vector<JSAMPROW> rows[4];
  jpeg_decompress_struct info;
  Errors errors;
  info.err = jpeg_std_error(&errors.base);
  errors.base.error_exit = fail;
  errors.base.emit_message = remark;
  errors.warned = SUCCESS;
  if (setjmp(errors.jump)) {
    const Status status = status_of(errors.base.msg_code);
    jpeg_destroy_decompress(&info);
    return status;
  }
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, data, length);
  jpeg_read_header(&info, TRUE);
  if (info.arith_code || info.num_components > 4) {
    jpeg_destroy_decompress(&info);
    return JPEG_NOT_SUPPORTED;
  }
  if (header) {
    take_header(info, *header);
  } else {
    // What it warned of in the header costs no samples.
    errors.warned = SUCCESS;
    info.raw_data_out = TRUE;
    info.out_color_space = info.jpeg_color_space;
    info.do_fancy_upsampling = FALSE;
    info.dct_method = JDCT_ISLOW;
    jpeg_start_decompress(&info);
    read_planes(info, *picture, strips, rows);
    jpeg_finish_decompress(&info);
  }
  jpeg_destroy_decompress(&info);
  return header ? SUCCESS : errors.warned;
}

}  // namespace

Status read_header(const uint8_t* data, size_t length, Header& header) { return run(data, length, &header, nullptr); }

Status decode_picture(const uint8_t* data, size_t length, Picture& picture) {
  return run(data, length, nullptr, &picture);
}
