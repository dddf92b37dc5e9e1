/* What nvjpeg.h takes from the header of this name, for making the bindings (sys/build.rs). */
typedef enum libraryPropertyType_t { MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL } libraryPropertyType;
