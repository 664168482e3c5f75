// What the stand-in of Core Video knows beyond what Apple's says.
#pragma once
#import <CoreVideo/CoreVideo.h>

bool CVPixelBufferIsLocked(CVPixelBufferRef buffer);
// The array over it is to report strides of zero.
bool CVPixelBufferIsStrange(CVPixelBufferRef buffer);
