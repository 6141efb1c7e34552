// Stands in for CUDA's header of this name, which nccl.h includes and needs nothing of.
#pragma once
